import {
  type Change,
  type HistoryResponse,
  HistoryResponseSchema,
} from '../gen/distributary/admin/v1/changes_pb.ts';
import { printable } from '../model/text.ts';
import { formatBytes, verdictText } from '../observe/format.ts';
import { count, text, type } from './command.ts';
import { answer, everyPart, relayCommand } from './relay-command.ts';
import { textTable, type View } from './terminal.ts';

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
      const response = await everyPart('changes', 'nextBefore', (before, listed) =>
        rpc.history({ ...asked, before, limit: limit === 0 ? 0 : limit - listed }),
      );
      return answer(HistoryResponseSchema, response, (view) => historyText(response, view));
    },
});

function historyText({ changes }: HistoryResponse, view: View): string {
  if (changes.length === 0) return 'nothing has changed yet';
  return textTable(
    changes,
    [
      ...(['revision', 'since'] as const),
      ['UPSTREAM', ({ upstream }) => upstream || '(operator)', 'wide'],
      'type',
      ['VERDICT', verdictText],
      ...(['accepted', 'rejected'] as const),
      ['BODIES', ({ bodies }) => (bodies ? 'yes' : 'no'), 'wide'],
      ['SIZE', ({ bytes }) => formatBytes(Number(bytes)), 'wide'],
      ['CHANGED', namesText],
    ],
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
