import {
  type Change,
  type HistoryResponse,
  HistoryResponseSchema,
} from '../gen/distributary/admin/v1/changes_pb.ts';
import { printable } from '../model/printable.ts';
import { formatBytes } from '../observe/format.ts';
import { type AdminClient, adminOptions, adminUsage } from './admin-client.ts';
import { defineCommand } from './command.ts';
import { jsonText } from './json-text.ts';
import { textTable } from './text-table.ts';
import { UsageError } from './usage.ts';
import { readCount, readType, shortTypes, withRelay } from './with-relay.ts';

const usage = `Usage: distributary history [--type T] [--name N] [--limit N] [--admin URL] [--cert F --key F] [--ca F] [--json]

Shows what has changed, the newest first. Names and revisions are for diff and rollback.

  --type T      only this type: a type URL, or one of: ${shortTypes}
  --name N      only changes of this resource
  --limit N     only the newest N
${adminUsage(14)}
  --json        as JSON
  -h, --help    this text

Exit: 0, or 1 if the relay does not answer.`;

const options = {
  type: { type: 'string' },
  name: { type: 'string' },
  limit: { type: 'string' },
  ...adminOptions,
  json: { type: 'boolean' },
} as const;

/** How many names of a change a line shows. */
const shownNames = 3;

/** The command `history`: its exit code. */
export const history = defineCommand({
  usage,
  options,
  run: async (values, terminal) => {
    const type = readType(values.type);
    if (!type.ok) return new UsageError(type.error, usage);
    const limit = readCount('--limit', values.limit, 0);
    if (!limit.ok) return new UsageError(limit.error, usage);
    return withRelay(values, usage, terminal, async ({ rpc }) => {
      const asked = { type: type.value, name: values.name ?? '' };
      const response = await everyChange(rpc, asked, limit.value);
      terminal.out(
        `${values.json === true ? jsonText(HistoryResponseSchema, response) : historyText(response)}\n`,
      );
      return 0;
    });
  },
});

/** An answer may not hold all of them. `limit` 0: any number. */
async function everyChange(
  rpc: AdminClient['rpc'],
  asked: { readonly type: string; readonly name: string },
  limit: number,
): Promise<HistoryResponse> {
  const whole = await rpc.history({ ...asked, limit });
  for (let before = whole.nextBefore; before > 0; ) {
    const left = limit === 0 ? 0 : limit - whole.changes.length;
    const page = await rpc.history({ ...asked, limit: left, before });
    whole.changes.push(...page.changes);
    before = page.nextBefore;
  }
  return { ...whole, nextBefore: 0 };
}

function historyText({ changes }: HistoryResponse): string {
  if (changes.length === 0) return 'nothing has changed yet';
  const rows = changes.map((change) => [
    change.revision,
    change.since,
    change.upstream || '(operator)',
    change.type,
    change.verdict,
    change.bodies ? 'yes' : 'no',
    formatBytes(Number(change.bytes)),
    namesText(change),
  ]);
  return textTable(['REVISION', 'SINCE', 'UPSTREAM', 'TYPE', 'VERDICT', 'BODIES', 'SIZE', 'CHANGED'], rows);
}

const signs: ReadonlyMap<string, string> = new Map([
  ['ADDED', '+'],
  ['REMOVED', '-'],
  ['CHANGED', '~'],
]);

function namesText({ names, added, changed, removed, reason }: Change): string {
  const shown = names
    .slice(0, shownNames)
    .map(({ name, change }) => `${signs.get(change) ?? ''}${printable(name)}`);
  const more = added + changed + removed - shown.length;
  const said = reason === '' ? '' : ` (${printable(reason)})`;
  return `${shown.join(' ')}${more > 0 ? ` and ${more} more` : ''}${said}`;
}
