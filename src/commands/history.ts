import {
  type Change,
  type HistoryResponse,
  HistoryResponseSchema,
} from '../gen/distributary/admin/v1/changes_pb.ts';
import { printable } from '../model/text.ts';
import { formatBytes, verdictText } from '../observe/format.ts';
import { count, text, type } from './command.ts';
import { type AdminClient, answer, relayCommand } from './relay-command.ts';
import { textTable, type View, wide } from './terminal.ts';

/** How many names of a change a line shows. */
const shownNames = 3;

export const history = relayCommand({
  name: 'history',
  does: 'lists changes',
  about:
    'Lists changes, the newest first. VERDICT says where a change is in its waves, or where it ended. ACCEPTED and REJECTED count the streams that have answered the change. diff and rollback take these revisions and names.',
  flags: {
    type: type('only this type'),
    name: text('N', 'only changes of this resource'),
    limit: count('N', 'only the newest N', 0),
  },
  exit: '0, or 1 if the relay does not answer.',
  ask:
    ({ limit, ...asked }) =>
    async ({ rpc }) => {
      const response = await everyChange(rpc, asked, limit);
      return answer(HistoryResponseSchema, response, (view) =>
        historyText(response, asked.type === '' && asked.name === '', view),
      );
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

/** `all`: no changes are left out. */
function historyText({ changes }: HistoryResponse, all: boolean, view: View): string {
  if (changes.length === 0) return all ? 'nothing has changed yet' : 'no change of this is known';
  const rows = changes.map((change) => [
    change.revision,
    change.since,
    change.upstream || '(operator)',
    change.type,
    verdictText(change),
    change.accepted,
    change.rejected,
    change.bodies ? 'yes' : 'no',
    formatBytes(Number(change.bytes)),
    namesText(change),
  ]);
  return textTable(
    [
      ...['REVISION', 'SINCE', wide('UPSTREAM'), 'TYPE', 'VERDICT'],
      ...['ACCEPTED', 'REJECTED', wide('BODIES'), wide('SIZE'), 'CHANGED'],
    ],
    rows,
    view,
  );
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
