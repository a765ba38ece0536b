import { commands } from '../../../src/commands/commands.ts';
import { Process } from './process.ts';
import { distributary, type RelayProcess } from './relay.ts';
import { clientsOf } from './relay-state.ts';

/** Its exit code, and what it printed: `err` on stderr, `out` altogether. */
interface Ran {
  readonly code: number | string;
  readonly out: string;
  readonly err: string;
}

/** A command in this process: to start one takes ten times the CPU of what it does. */
export const run = (...argv: readonly string[]): Promise<Ran> => runIn(process.env, ...argv);

/** The same, with an environment of its own. */
export async function runIn(
  environment: Readonly<Record<string, string | undefined>>,
  ...[name, ...argv]: readonly string[]
): Promise<Ran> {
  const command = commands.find((one) => one.name === name);
  if (command === undefined) throw new Error(`there is no command ${String(name)}`);
  let [out, err] = ['', ''];
  const code = await command(argv, {
    out: (text) => {
      out += text;
    },
    err: (text) => {
      out += text;
      err += text;
    },
    environment,
  });
  return { code, out: out.replace(/\n$/, ''), err: err.replace(/\n$/, '') };
}

/** A command as users run it. */
export async function runProcess(...argv: readonly string[]): Promise<Ran> {
  const child = new Process(distributary(...argv));
  const code = await child.exited;
  return { code, out: child.lines.join('\n'), err: child.errors.join('\n') };
}

/** What `explain` prints for a client, by the id of its node, and a resource. */
export async function explainedOf(
  relay: RelayProcess,
  node: string,
  type: string,
  name: string,
): Promise<string> {
  const client = (await clientsOf(relay)).find((one) => one.node.id === node);
  const asked = ['--type', type, '--name', name, '--client', client?.id ?? ''];
  return (await run('explain', '--admin', `http://${relay.admin}`, ...asked)).out;
}
