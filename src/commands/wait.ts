import { setTimeout as pause } from 'node:timers/promises';
import { toJsonString } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import type { StatusResponse } from '../gen/distributary/admin/v1/admin_pb.ts';
import {
  TapMessageSchema,
  type WaitRequest,
  type WaitResponse,
} from '../gen/distributary/admin/v1/delivery_pb.ts';
import { counted, errorLine, printableJson } from '../model/text.ts';
import { textTable, type View } from '../observe/text-table.ts';
import { commandWith, count, duration, text, toggle, type, UsageError } from './command.ts';
import { relayFlags } from './context.ts';
import { type AdminClient, answer, relayClient, relayCommand, withRelay } from './relay-command.ts';
import { firstSignal, staleLines } from './terminal.ts';

const usualWaitMs = 60_000;
const longestWaitMs = 3_600_000;
/** How much longer than the wait its answer may take, in milliseconds. */
const graceMs = 10_000;
/** How often it is looked how far a change is, in milliseconds. */
const progressMs = 1000;

export const wait = relayCommand({
  name: 'wait',
  does: 'waits until every client has accepted what upstream has',
  about: `Waits until every client that subscribes has accepted what upstream has now. A client that subscribes and gets nothing has not
accepted it. While an upstream that it comes from may be out of date, nobody knows what upstream has, so the wait goes on. Clients that
poll do not count: they do not report what they accept. While a change goes through its waves, stderr says how far it is. With --wave
clients of later waves need not have accepted anything; --min-clients counts them too, and the rest is the same. A wave that no client
is in passes at once.`,
  flags: {
    type: type('only this type'),
    name: text('N', 'only this resource'),
    revision: count('REV', 'only what this revision changed (see history)', 0),
    'allow-stale': toggle('accept what upstream sent last, even if it may be out of date'),
    wave: count(
      'N',
      'only until the clients of its waves up to this one have accepted the change, or everybody has it',
      0,
    ),
    'min-clients': count('N', 'at least N streams must subscribe; default 1; 0: none need', 1, 0),
    timeout: duration('TIME', 'how long, as in 500ms or 60s, at most 1h; default 60s'),
  },
  exit: '0 if all have accepted it; 1 at the timeout, and stderr says who has not and why; 1 at once if the revision was discarded.',
  ask: ({
    timeout: timeoutMs = usualWaitMs,
    'allow-stale': allowStale,
    'min-clients': minClients,
    ...what
  }) => {
    if (timeoutMs > longestWaitMs) return new UsageError('--timeout is too long: expected at most 1h');
    return async ({ rpc }, say) => {
      const timeoutSeconds = timeoutMs / 1000;
      const asked = { ...what, allowStale, minClients, timeoutSeconds };
      const asking = rpc.wait(asked, { timeoutMs: timeoutMs + graceMs });
      const response = await tellingProgress(asking, rpc, say);
      const { accepted, clients } = response;
      const done =
        what.wave === 0
          ? `accepted by all: ${subscribeText(clients)}`
          : `wave ${what.wave} has accepted the change, or everybody has it`;
      const missing = (view: View): string => missingText(response, timeoutMs, asked, view);
      const problem = accepted ? undefined : missing;
      const text = (): string => (accepted ? [done, ...staleLines(response)].join('\n') : '');
      return answer(response, text, problem);
    };
  },
});

/** Until the answer is there: each time that a change is somewhere else, a line. */
async function tellingProgress<T>(
  answered: Promise<T>,
  rpc: AdminClient['rpc'],
  say: (line: string) => void,
): Promise<T> {
  const over = new AbortController();
  const { signal } = over;
  const tell = async (): Promise<void> => {
    for (let told = ''; !signal.aborted; ) {
      await pause(progressMs, undefined, { signal });
      const line = progressText(await rpc.status({}, { signal }));
      if (line !== told && line !== '') say(line);
      told = line;
    }
  };
  // Where it is not known, the answer says why.
  const telling = tell().catch(() => {});
  try {
    return await answered;
  } finally {
    over.abort();
    await telling;
  }
}

/** Empty: nothing waits. */
function progressText({ rollout, waveClients }: StatusResponse): string {
  if (rollout === undefined || rollout.wave === 0) return '';
  const { state, wave, waves, reason } = rollout;
  const before = waveClients.slice(0, wave);
  const sum = (of: 'clients' | 'accepted'): number => before.reduce((all, one) => all + one[of], 0);
  const clients = counted(sum('clients'), 'client');
  const why = reason === '' ? '' : `: ${errorLine(reason)}`;
  return `${state} in wave ${wave} of ${waves}: accepted by ${sum('accepted')} of ${clients}${why}`;
}

function missingText(
  response: WaitResponse,
  timeoutMs: number,
  { allowStale, minClients }: Pick<WaitRequest, 'allowStale'> & { readonly minClients: number },
  view: View,
): string {
  const { missing, clients, missingClients } = response;
  const after = `not accepted after ${timeoutMs % 1000 === 0 ? `${timeoutMs / 1000}s` : `${timeoutMs}ms`}`;
  const lines = [
    ...(clients < minClients
      ? [`${subscribeText(clients)}; expected at least ${minClients} (--min-clients)`]
      : []),
    ...(allowStale ? [] : staleLines(response)),
  ];
  if (missing === 0) return `${after}: ${lines.join('\n')}`;
  const table = textTable(missingClients, ['client', 'node', 'type', 'name', 'state', 'why'], view);
  // About a name, not about a stream.
  const unnamed = missingClients.filter(({ client, state }) => client === '' && state !== 'NOT_SENT');
  const held = unnamed.filter(({ state }) => state === 'HELD').length;
  const streams = missing - unnamed.length;
  const unknown = unnamed.length - held;
  const said = `${after}${whose(streams, clients, held, unknown)}${missingClients.length < missing ? ', among them' : ''}:`;
  return [...lines, `${said}\n\n${table}`].join('\n');
}

function subscribeText(clients: number): string {
  if (clients === 0) return 'no stream subscribes';
  return `${counted(clients, 'stream')} ${clients === 1 ? 'subscribes' : 'subscribe'}`;
}

/** Streams that have not accepted it, names that the relay holds back from all of them, and names of nobody. */
function whose(streams: number, clients: number, held: number, unknown: number): string {
  const byStreams = ` by ${streams} of ${counted(clients, 'stream')}`;
  const names = [
    ...(held === 0 ? [] : [`the relay holds back ${counted(held, 'name')}`]),
    ...(unknown === 0 ? [] : [`nothing is known about ${counted(unknown, 'name')}`]),
  ].join('; ');
  if (names === '') return byStreams;
  return streams === 0 ? `: ${names}` : `${byStreams}; ${names}`;
}

export const tap = commandWith(relayFlags, {
  name: 'tap',
  does: 'shows messages to and from clients, live',
  about: `Shows the messages to and from clients as they pass, without bodies: one JSON object a line, until Ctrl-C. A reader
that is too slow loses messages, and a line {"event":"LOST","lost":N} says how many.`,
  flags: {
    client: text('ID', 'only this stream (see clients), until it ends'),
    type: type('only this type'),
    limit: count('N', 'stop after N lines', Number.POSITIVE_INFINITY),
    json: toggle('no effect: the output is always JSON'),
  },
  exit: '0, also when the relay drains; 1 if there is no such client, if the relay does not answer, or if a worker exits whose clients it shows.',
  run: ({ client, type, limit }, { terminal, shared }) => {
    return withRelay(relayClient(shared, terminal.environment), terminal, async ({ rpc }) => {
      const interrupted = firstSignal('SIGINT', 'SIGTERM');
      const { signal } = interrupted;
      let left = limit;
      try {
        // A tap says nothing until a message passes: this says whether the relay answers at all.
        await rpc.status({}, { signal });
        for await (const message of rpc.tap({ client, type }, { signal, timeoutMs: 0 })) {
          const json = toJsonString(TapMessageSchema, message, { useProtoFieldName: true });
          terminal.out(`${printableJson(json)}\n`);
          if (--left === 0) break;
        }
      } catch (error) {
        // Ctrl-C is how it is meant to end.
        if (!signal.aborted || ConnectError.from(error).code !== Code.Canceled) throw error;
      } finally {
        // After --limit lines the relay would go on.
        interrupted.release();
      }
      return 0;
    });
  },
});
