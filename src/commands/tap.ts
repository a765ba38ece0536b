import { toJsonString } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { TapMessageSchema } from '../gen/distributary/admin/v1/delivery_pb.ts';
import { printableJson } from '../model/text.ts';
import { commandWith, count, text, toggle, type } from './command.ts';
import { relayFlags } from './context.ts';
import { type AdminClient, relayClient, withRelay } from './relay-command.ts';
import { firstSignal, type Terminal } from './terminal.ts';

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
  exit: '0; 1 if there is no such client, if the relay does not answer, or if a worker ends whose clients it shows.',
  run: ({ client, type, limit }, { terminal, shared }) => {
    return withRelay(relayClient(shared, terminal.environment), terminal, async (relay) => {
      const interrupted = firstSignal('SIGINT', 'SIGTERM');
      try {
        await printMessages(relay, { client, type }, limit, interrupted.signal, terminal);
        return 0;
      } finally {
        // After --limit lines the relay would go on.
        interrupted.release();
      }
    });
  },
});

async function printMessages(
  { rpc }: AdminClient,
  request: { readonly client: string; readonly type: string },
  limit: number,
  signal: AbortSignal,
  terminal: Terminal,
): Promise<void> {
  let left = limit;
  try {
    // A tap says nothing until a message passes: this says whether the relay answers at all.
    await rpc.status({}, { signal });
    for await (const message of rpc.tap(request, { signal, timeoutMs: 0 })) {
      const json = toJsonString(TapMessageSchema, message, { useProtoFieldName: true });
      terminal.out(`${printableJson(json)}\n`);
      if (--left === 0) return;
    }
  } catch (error) {
    // Ctrl-C is how it is meant to end.
    if (!signal.aborted || ConnectError.from(error).code !== Code.Canceled) throw error;
  }
}
