import type { ClusterLoad, LoadResponse } from '../gen/distributary/admin/v1/load_pb.ts';
import { counted } from '../model/text.ts';
import { errorShare, perSecond } from '../observe/format.ts';
import { parametersLabel } from '../observe/problems.ts';
import { type Painted, painted, textTable, type View } from '../observe/text-table.ts';
import { text } from './command.ts';
import { answer, relayCommand } from './relay-command.ts';

export const load = relayCommand({
  name: 'load',
  does: 'shows requests, errors and drops that clients report, by cluster and class',
  about: `Shows what clients have reported of their requests (LRS) in the last half a minute to minute. A client reports if its
control plane asks for it, or with rollout.traffic. -o json has the counts, and over how many seconds they are.`,
  flags: {
    cluster: text('C', 'only this cluster; * matches any characters'),
    class: text(
      'K',
      'only this class of clients: KEY=VALUE of one of its parameters, or the id that -o json shows',
    ),
  },
  watch: true,
  exit: '0, even if there is none; 1 if the relay does not answer.',
  ask:
    (asked) =>
    async ({ rpc }) => {
      const response = await rpc.load(asked);
      const isFiltered = asked.cluster !== '' || asked.class !== '';
      return answer(response, (view) => loadText(response, isFiltered, view));
    },
});

function loadText(
  { loads, total, seconds, noAnswer }: LoadResponse,
  isFiltered: boolean,
  view: View,
): string {
  const silent = noAnswer === undefined ? '' : `\nIncomplete: ${noAnswer}.`;
  if (loads.length === 0)
    return `no client has reported any request${isFiltered ? ' that matches --cluster and --class' : ''}${silent}`;
  const table = textTable(
    loads,
    [
      'cluster',
      ['CLASS', ({ parameters }) => parametersLabel(parameters, undefined, ',')],
      ['REQUESTS/S', ({ requests }) => perSecond(requests, seconds)],
      ['ERRORS', errorsCell],
      ['DROPPED/S', ({ dropped }) => perSecond(dropped, seconds)],
    ],
    view,
  );
  const rest = total - loads.length;
  const shown = `${counted(loads.length, 'row')} of the last ${Math.round(seconds)} s`;
  return `${table}\n\n${shown}${rest > 0 ? `, ${rest} not shown` : ''}${silent}`;
}

function errorsCell({ errors, requests }: ClusterLoad): Painted | string {
  const share = errorShare(errors, requests);
  return errors === 0 ? share : painted('red', share);
}
