import { statusText } from '../admin/status-text.ts';
import type { Client, ClientTypeState, ListClientsResponse } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { ClassProblem } from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { ClusterLoad, LoadResponse } from '../gen/distributary/admin/v1/load_pb.ts';
import { clientStates } from '../model/subscription.ts';
import { counted, errorLine, printable } from '../model/text.ts';
import { WILDCARD } from '../model/transaction.ts';
import { ago, errorShare, perSecond } from '../observe/format.ts';
import { missingText, parametersLabel, sentence, worstOf } from '../observe/problems.ts';
import {
  type Column,
  type Painted,
  painted,
  stateCell,
  textTable,
  type View,
} from '../observe/text-table.ts';
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

/** `missing`: what classes of clients lack, and why. `now` is milliseconds since the epoch. */
function clientsText(
  { clients: listed, total, matching, noAnswer }: ListClientsResponse,
  missing: readonly ClassProblem[],
  view: View,
  now: number,
): string {
  const silent = noAnswer === undefined ? '' : `\nIncomplete: ${noAnswer}.`;
  if (listed.length === 0) {
    const none =
      total === 0 ? 'no client is connected' : `no client matches (${counted(total, 'client')} in all)`;
    return none + silent;
  }
  const table = textTable(listed.toSorted(byUrgency), columnsOf(missing, now), view);
  const rest = matching - listed.length;
  const shown = matching === total ? counted(total, 'client') : `${matching} of ${counted(total, 'client')}`;
  return `${table}\n\n${shown}${rest > 0 ? `, ${rest} not shown` : ''}${silent}`;
}

/** The worst first. */
const urgency = ['ERROR', 'MISSING', 'STALE', 'NOT_SENT', 'SYNCED'];

/** How the type stands that stands worst; empty without types. */
function worstStateOf({ types }: Client): string {
  return urgency.find((state) => types.some((type) => type.state === state)) ?? '';
}

function byUrgency(a: Client, b: Client): number {
  const difference = urgency.indexOf(worstStateOf(a)) - urgency.indexOf(worstStateOf(b));
  if (difference !== 0) return difference;
  const [left, right] = [a.node?.id ?? '', b.node?.id ?? ''];
  return left < right ? -1 : Number(left > right);
}

/** Rare: nobody polls, nothing waits. */
const columnsOf = (missing: readonly ClassProblem[], now: number): readonly Column<Client>[] => [
  ['CLIENT', 'id'],
  ['NODE', ({ node }) => node?.id ?? ''],
  ['CLUSTER', ({ node }) => node?.cluster ?? '', 'wide'],
  ['PEER', 'peer', 'wide'],
  ['PROTOCOL', 'transport', 'wide'],
  ['LAST POLL', (client) => agoText(lastPollOf(client), now), 'rare'],
  ['WAVE', waveText, 'wide', 'rare'],
  ['STATE', (client) => stateCell(worstStateOf(client))],
  ['TYPES', ({ types }) => statesText(types)],
  ['ANSWERED WITH', versionsText, 'wide', 'rare'],
  [
    'WHY',
    (client) => client.types.find(({ state }) => state === 'ERROR')?.lastNack ?? whyMissing(client, missing),
  ],
];

/** `2 ACCEPTED`; empty: nothing waits for it. */
function waveText({ wave: at }: Client): string {
  if (at === undefined) return '';
  const { wave, waves, answer } = at;
  return `${wave > waves ? 'everybody' : wave} ${answer}`.trimEnd();
}

const isMissing = ({ state }: ClientTypeState): boolean => state === 'MISSING';

/** `web: no variant matches; env=prod has one`: of the first type, and how many more there are. */
function whyMissing({ class: of, types }: Client, missing: readonly ClassProblem[]): string {
  const lacking = new Set(types.filter(isMissing).map(({ type }) => type));
  const [first, ...rest] = missing.filter((one) => one.class === of && lacking.has(one.type));
  if (first === undefined) return '';
  const { type, name } = first;
  const more = rest.length === 0 ? '' : `, and ${counted(rest.length, 'more name')}`;
  return `no ${name === WILDCARD ? `${type} *` : name}: ${missingText(first)}${more}`;
}

/** Empty: it has a stream. Times are RFC 3339 in UTC, so their order is that of the texts. */
const lastPollOf = ({ types }: Client): string =>
  types
    .map(({ lastPoll }) => lastPoll)
    .toSorted()
    .at(-1) ?? '';

function agoText(time: string, now: number): string {
  const text = ago(time, now);
  return text === undefined ? '' : `${text} ago`;
}

/** Of what polls, `cds 7@1f0c, eds 7@88a2`. */
const versionsText = ({ types }: Client): string =>
  types
    .filter(({ lastPoll, version }) => lastPoll !== '' && version !== '')
    .map(({ type, version }) => `${type} ${version}`)
    .join(', ');

/** `rds ERROR, eds STALE, cds lds`: those without a word are acknowledged. */
function statesText(types: readonly ClientTypeState[]): string {
  return urgency
    .flatMap((state) => {
      const names = types.filter((type) => type.state === state).map(({ type }) => type);
      if (names.length === 0) return [];
      return state === 'SYNCED' ? names.join(' ') : `${names.join(' ')} ${state}`;
    })
    .join(', ');
}

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
