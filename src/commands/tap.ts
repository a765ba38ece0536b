import { toJsonString } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { TapMessageSchema } from '../gen/distributary/admin/v1/delivery_pb.ts';
import { printableJson } from '../model/printable.ts';
import { type AdminClient, adminOptions, adminUsage } from './admin-client.ts';
import { defineCommand } from './command.ts';
import { type Terminal, UsageError } from './usage.ts';
import { readCount, readType, shortTypes, withRelay } from './with-relay.ts';

const usage = `Usage: distributary tap [--client STREAM_ID] [--type T] [--limit N] [--admin URL] [--cert F --key F] [--ca F]
       [--json]

Shows the messages to and from clients as they pass, without bodies: one JSON object a line, until Ctrl-C. Whoever reads
too slowly loses messages, and a line {"event":"LOST","lost":N} says how many.

  --client STREAM_ID   only this stream (see the status page), until it ends
  --type T             only this type: a type URL, or one of: ${shortTypes}
  --limit N            ends after so many lines
${adminUsage(21)}
  --json               changes nothing: the lines are JSON
  -h, --help           this text

Exit: 0; 1 if there is no such client, or if the relay does not answer.`;

const options = {
  client: { type: 'string' },
  type: { type: 'string' },
  limit: { type: 'string' },
  ...adminOptions,
  json: { type: 'boolean' },
} as const;

/** The command `tap`: its exit code. */
export const tap = defineCommand({
  usage,
  options,
  run: async (values, terminal) => {
    const type = readType(values.type);
    if (!type.ok) return new UsageError(type.error, usage);
    const limit = readCount('--limit', values.limit, Number.POSITIVE_INFINITY);
    if (!limit.ok) return new UsageError(limit.error, usage);
    const interrupted = new AbortController();
    const interrupt = (): void => interrupted.abort();
    process.once('SIGINT', interrupt).once('SIGTERM', interrupt);
    try {
      return await withRelay(values, usage, terminal, async (client) => {
        const request = { client: values.client ?? '', type: type.value };
        await printMessages(client, request, limit.value, interrupted.signal, terminal);
        return 0;
      });
    } finally {
      // After --limit lines the relay would go on.
      interrupted.abort();
      process.off('SIGINT', interrupt).off('SIGTERM', interrupt);
    }
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
