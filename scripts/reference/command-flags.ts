import { catalog } from '../../src/commands/catalog.ts';

/** A module with the flags of all commands, so that completion need not load the commands themselves. */
export async function commandFlags(): Promise<string> {
  const rows = await Promise.all(
    catalog
      .filter(({ name }) => name !== 'completion')
      .map(async ({ name, load }) => {
        const { options } = await load();
        const flags = Object.entries(options).map(([flag, { type }]) => `['${flag}', '${type}']`);
        return `  ['${name}', [${flags.join(', ')}]],`;
      }),
  );
  return `/** What a flag takes, as node:util parseArgs has it. */
type FlagType = 'boolean' | 'string';

/** The flags of each command but completion, without --help. Written by npm run generate, from the commands. */
// biome-ignore format: a table, one command a line
export const commandFlags: ReadonlyMap<string, readonly (readonly [name: string, type: FlagType])[]> = new Map<string, readonly (readonly [string, FlagType])[]>([
${rows.join('\n')}
]);
`;
}
