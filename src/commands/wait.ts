import { parseDuration } from '../config/duration.ts';
import { type WaitResponse, WaitResponseSchema } from '../gen/distributary/admin/v1/delivery_pb.ts';
import { printable } from '../model/printable.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { counted } from '../model/text.ts';
import { adminOptions, adminUsage } from './admin-client.ts';
import { defineCommand } from './command.ts';
import { jsonText } from './json-text.ts';
import { textTable } from './text-table.ts';
import { UsageError } from './usage.ts';
import { readCount, readType, shortTypes, withRelay } from './with-relay.ts';

const usage = `Usage: distributary wait [--type T] [--name N] [--revision REV] [--timeout 60s] [--admin URL]
       [--cert F --key F] [--ca F] [--json]

Waits until every client that subscribes has accepted what upstream has now. Clients that poll do not count: they do
not say what they accept.

  --type T         only this type: a type URL, or one of: ${shortTypes}
  --name N         only this resource
  --revision REV   only what this revision changed (see history)
  --timeout T      how long, as in 500ms or 60s, at most 1h; default 60s
${adminUsage(17)}
  --json           as JSON
  -h, --help       this text

Exit: 0 if all have accepted it; 1 at the timeout, and stderr says who has not and why.`;

const options = {
  type: { type: 'string' },
  name: { type: 'string' },
  revision: { type: 'string' },
  timeout: { type: 'string', default: '60s' },
  ...adminOptions,
  json: { type: 'boolean' },
} as const;

const longestWaitMs = 3_600_000;
/** How much longer than the wait its answer may take, in milliseconds. */
const graceMs = 10_000;

/** The command `wait`: its exit code. */
export const wait = defineCommand({
  usage,
  options,
  run: async (values, terminal) => {
    const request = readRequest(values);
    if (!request.ok) return new UsageError(request.error, usage);
    const { timeoutMs, ...what } = request.value;
    return withRelay(values, usage, terminal, async ({ rpc }) => {
      const timeoutSeconds = timeoutMs / 1000;
      const response = await rpc.wait({ ...what, timeoutSeconds }, { timeoutMs: timeoutMs + graceMs });
      if (values.json === true) {
        terminal.out(`${jsonText(WaitResponseSchema, response)}\n`);
      } else if (response.accepted)
        terminal.out(
          `accepted by all: ${counted(response.clients, 'stream')} ${response.clients === 1 ? 'subscribes' : 'subscribe'}\n`,
        );
      if (response.accepted) return 0;
      terminal.err(`${missingText(response, values.timeout)}\n`);
      return 1;
    });
  },
});

interface Given {
  readonly type?: string | undefined;
  readonly name?: string | undefined;
  readonly revision?: string | undefined;
  readonly timeout: string;
}

function readRequest({ type, name = '', revision, timeout }: Given) {
  const known = readType(type);
  if (!known.ok) return known;
  const number = readCount('--revision', revision, 0);
  if (!number.ok) return number;
  const timeoutMs = readTimeout(timeout);
  if (!timeoutMs.ok) return timeoutMs;
  return ok({ type: known.value, name, revision: number.value, timeoutMs: timeoutMs.value });
}

function readTimeout(text: string): Result<number> {
  const read = parseDuration(text);
  if (!read.ok) return fail(`--timeout: ${read.error}`);
  return read.value <= longestWaitMs ? read : fail(`--timeout ${text} is too long: at most 1h is accepted`);
}

function missingText({ missing, clients, missingClients }: WaitResponse, timeout: string): string {
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
  const said = printable(`not accepted after ${timeout}${whose(streams, clients, held)}`);
  return rows.length < missing ? `${said}, among them\n\n${table}` : `${said}:\n\n${table}`;
}

/** Streams that have not accepted it, and names that the relay holds back from all of them. */
function whose(streams: number, clients: number, held: number): string {
  const byStreams = ` by ${streams} of ${counted(clients, 'stream')}`;
  if (held === 0) return byStreams;
  const names = `the relay holds back ${counted(held, 'name')}`;
  return streams === 0 ? `: ${names}` : `${byStreams}; ${names}`;
}
