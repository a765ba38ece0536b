import { parseDuration } from '../config/duration.ts';
import { type SetLogLevelResponse, SetLogLevelResponseSchema } from '../gen/distributary/admin/v1/log_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { isLogLevel, levels } from '../observe/log-levels.ts';
import { adminOptions, adminUsage } from './admin-client.ts';
import { defineCommand } from './command.ts';
import { jsonText } from './json-text.ts';
import { textTable } from './text-table.ts';
import { UsageError } from './usage.ts';
import { showRelay } from './with-relay.ts';

const accepted = levels.join(', ');

const usage = `Usage: distributary log [--node ID] (--level LEVEL [--for TIME] | --reset) [--admin URL] [--cert F --key F] [--ca F]
       [--json]

Another log level for a time, in all processes of a running relay. Then the level of its start counts again.

  --node ID       only lines about this node id, as in ListClients; without it all lines
  --level LEVEL   ${accepted}
  --for TIME      how long, as in 30s, 10m or 1h; default 10m, at most 24h
  --reset         ends now what was set before
${adminUsage(16)}
  --json          as JSON
  -h, --help      this text

Exit: 0 and what is in force; 1 if the relay refuses or does not answer.`;

/** The command `log`: its exit code. */
export const log = defineCommand({
  usage,
  options: {
    node: { type: 'string', default: '' },
    level: { type: 'string' },
    for: { type: 'string' },
    reset: { type: 'boolean', default: false },
    ...adminOptions,
    json: { type: 'boolean' },
  },
  run: (values, terminal) => {
    const request = readRequest(values);
    if (!request.ok) return new UsageError(request.error, usage);
    return showRelay(values, usage, terminal, async ({ rpc }) => {
      const response = await rpc.setLogLevel({ node: values.node, ...request.value });
      return values.json === true ? jsonText(SetLogLevelResponseSchema, response) : text(response);
    });
  },
});

interface Given {
  readonly level?: string | undefined;
  readonly for?: string | undefined;
  readonly reset: boolean;
}

/** Level empty: the one of the start again. Seconds 0: the relay's default. */
function readRequest({
  level,
  for: time,
  reset,
}: Given): Result<{ readonly level: string; readonly forSeconds: number }> {
  if (reset) {
    return level === undefined && time === undefined
      ? ok({ level: '', forSeconds: 0 })
      : fail('--reset stands alone: without --level and --for');
  }
  if (level === undefined) return fail(`--level is missing: one of ${accepted}; or --reset`);
  if (!isLogLevel(level)) return fail(`--level ${JSON.stringify(level)} is not accepted: ${accepted} are`);
  if (time === undefined) return ok({ level, forSeconds: 0 });
  const duration = parseDuration(time);
  if (!duration.ok) return fail(`--for ${duration.error}`);
  if (duration.value === 0) return fail('--for 0 is too short: --reset ends what was set');
  return ok({ level, forSeconds: duration.value / 1000 });
}

function text({ level, overrides }: SetLogLevelResponse): string {
  if (overrides.length === 0) return `log level ${level}`;
  const rows = overrides.map((one) => [one.node === '' ? '(all)' : one.node, one.level, one.until]);
  return `log level ${level}, and until then\n${textTable(['NODE', 'LEVEL', 'UNTIL'], rows)}`;
}
