import { type WaitResponse, WaitResponseSchema } from '../gen/distributary/admin/v1/delivery_pb.ts';
import { printable } from '../model/printable.ts';
import { counted } from '../model/text.ts';
import { count, duration, text, type, UsageError } from './command.ts';
import { answer, relayCommand } from './relay-command.ts';
import { textTable } from './terminal.ts';

const usualWaitMs = 60_000;
const longestWaitMs = 3_600_000;
/** How much longer than the wait its answer may take, in milliseconds. */
const graceMs = 10_000;

export const wait = relayCommand({
  name: 'wait',
  does: 'until every client has accepted what upstream has',
  about: `Waits until every client that subscribes has accepted what upstream has now. Clients that poll do not count: they do
not say what they accept.`,
  flags: {
    type: type('only this type'),
    name: text('N', 'only this resource'),
    revision: count('REV', 'only what this revision changed (see history)', 0),
    timeout: duration('TIME', 'how long, as in 500ms or 60s, at most 1h; default 60s'),
  },
  exit: '0 if all have accepted it; 1 at the timeout, and stderr says who has not and why.',
  ask: ({ timeout: timeoutMs = usualWaitMs, ...what }) => {
    if (timeoutMs > longestWaitMs) return new UsageError('--timeout is too long: at most 1h is accepted');
    return async ({ rpc }) => {
      const timeoutSeconds = timeoutMs / 1000;
      const response = await rpc.wait({ ...what, timeoutSeconds }, { timeoutMs: timeoutMs + graceMs });
      const { accepted, clients } = response;
      const done = `accepted by all: ${counted(clients, 'stream')} ${clients === 1 ? 'subscribes' : 'subscribe'}`;
      const problem = accepted ? undefined : missingText(response, timeoutMs);
      return answer(WaitResponseSchema, response, () => (accepted ? done : ''), problem);
    };
  },
});

function missingText({ missing, clients, missingClients }: WaitResponse, timeoutMs: number): string {
  const rows = missingClients.map(({ client, node, type, name, state, why }) => [
    client,
    node,
    type,
    name,
    state,
    why,
  ]);
  const table = textTable(['CLIENT', 'NODE', 'TYPE', 'NAME', 'STATE', 'WHY'], rows);
  const held = missingClients.filter(({ client, state }) => client === '' && state === 'HELD').length;
  const streams = missing - held;
  const said = printable(
    `not accepted after ${timeoutMs % 1000 === 0 ? `${timeoutMs / 1000}s` : `${timeoutMs}ms`}${whose(streams, clients, held)}`,
  );
  return rows.length < missing ? `${said}, among them\n\n${table}` : `${said}:\n\n${table}`;
}

/** Streams that have not accepted it, and names that the relay holds back from all of them. */
function whose(streams: number, clients: number, held: number): string {
  const byStreams = ` by ${streams} of ${counted(clients, 'stream')}`;
  if (held === 0) return byStreams;
  const names = `the relay holds back ${counted(held, 'name')}`;
  return streams === 0 ? `: ${names}` : `${byStreams}; ${names}`;
}
