import { clientsText, isMissing, statusText } from '../admin/status-text.ts';
import type { ListClientsResponse } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { ClusterLoad, LoadResponse } from '../gen/distributary/admin/v1/load_pb.ts';
import { clientStates } from '../model/subscription.ts';
import { counted, errorLine, printable } from '../model/text.ts';
import { errorShare, perSecond } from '../observe/format.ts';
import { parametersLabel, sentence, worstOf } from '../observe/problems.ts';
import { type Painted, painted, textTable, type View } from '../observe/text-table.ts';
import { count, oneOf, text, toggle, type } from './command.ts';
import { answer, everyPart, relayCommand } from './relay-command.ts';

export const status = relayCommand({
  name: 'status',
  does: 'shows problems, upstreams, types and clients of a running relay',
  about:
    'Shows the state of a running relay: problems with the commands that help, upstreams and how current they are, types and clients.',
  flags: { check: toggle('one line, for monitoring: OK, WARNING, CRITICAL or UNKNOWN, and why') },
  watch: true,
  exit: '0, or 1 if the relay does not answer. With --check: 0 OK, 1 warning, 2 critical, 3 unknown (the relay cannot be asked).',
  unanswered: ({ check }, why) => (check ? [`UNKNOWN: ${printable(why)}`, 3] : undefined),
  ask:
    ({ check }) =>
    async ({ rpc }) => {
      const response = await rpc.status({});
      const { clients, pollingClients, problems, moreProblems } = response;
      if (!check) return answer(response, (view) => statusText(response, Date.now(), view));
      const { word, code } = checked[worstOf(problems)];
      // An alert is read where nobody can ask for more: it says why.
      const whole = problems.map(({ severity, short, since: from, detail }) => ({
        severity,
        short,
        since: from,
        why: errorLine(detail, longestReason),
      }));
      const said = sentence(clients + pollingClients, whole, moreProblems, Date.now());
      return { ...answer(response, () => `${word}: ${printable(said)}`), code };
    },
});

/** Of three problems in one line. Bytes. */
const longestReason = 200;

/** As monitoring systems take it: the states of Nagios, and their exit codes. */
const checked = {
  info: { word: 'OK', code: 0 },
  warning: { word: 'WARNING', code: 1 },
  critical: { word: 'CRITICAL', code: 2 },
} as const;

export const clients = relayCommand({
  name: 'clients',
  does: 'lists connected clients, what they were sent, and whether they accepted it',
  about: `Lists the clients that are connected, those that rejected something first: one line for each stream. Its id is what
--client of explain, get, diff and tap takes. A client that polls (REST, Fetch) has a line until it has not polled for
three of its own intervals; tap does not show polls.`,
  flags: {
    node: text('ID', 'only those of this node; * matches any characters'),
    type: type('only those that subscribe to this type'),
    state: oneOf(
      'S',
      clientStates,
      'only those with a type (or with that --type) in this state: SYNCED (acknowledged), STALE (sent, and not acknowledged yet), ERROR (rejected), NOT_SENT or MISSING (something it subscribes to does not exist for it: explain says why); case does not matter',
    ),
    wave: count(
      'N',
      'only those that get the change that waits in this wave; one more than there are: those that get it with everybody',
      0,
    ),
    limit: count('N', 'list at most N', 0),
  },
  watch: true,
  exit: '0, even if there is none; 1 if the relay does not answer.',
  ask:
    ({ state = '', limit: most, ...asked }) =>
    async ({ rpc }) => {
      let silent: string | undefined;
      const part = async (offset: number, listed: number): Promise<ListClientsResponse> => {
        const limit = most === 0 ? 0 : most - listed;
        const listing = await rpc.listClients({ ...asked, state, limit, offset });
        silent ??= listing.noAnswer;
        return listing;
      };
      const whole = await everyPart('clients', 'nextOffset', part);
      const response = silent === undefined ? whole : { ...whole, noAnswer: silent };
      const text = async (view: View): Promise<string> => {
        const missing = response.clients.some((client) => client.types.some(isMissing))
          ? (await rpc.listClasses({})).problems.filter(({ kind }) => kind === 'MISSING')
          : [];
        return clientsText(response, missing, view, Date.now());
      };
      return answer(response, text);
    },
});

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
