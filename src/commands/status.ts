import { clientsText, isMissing, statusText } from '../admin/status-text.ts';
import type { ListClientsResponse } from '../gen/distributary/admin/v1/admin_pb.ts';
import { clientStates } from '../model/subscription.ts';
import { errorLine, printable } from '../model/text.ts';
import { sentence, worstOf } from '../observe/problems.ts';
import type { View } from '../observe/text-table.ts';
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
      // An alert is read where nobody can ask for more: it says which clients, and why.
      const whole = problems.map(({ severity, title, short, classes, since: from, detail }) => ({
        severity,
        short: classes.length > 0 ? title : short,
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
