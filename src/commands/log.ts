import type { SetLogLevelResponse } from '../gen/distributary/admin/v1/log_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { anyOf } from '../model/text.ts';
import { levels } from '../observe/log-levels.ts';
import { textTable, type View } from '../observe/text-table.ts';
import { duration, oneOf, text, toggle, UsageError, type ValuesOf } from './command.ts';
import { answer, relayCommand } from './relay-command.ts';

const flags = {
  node: text(
    'ID',
    'only lines about this node id (see clients), and about streams refused before their node is known; without it, all lines',
  ),
  level: oneOf('LEVEL', levels, levels.join(', ')),
  for: duration('TIME', 'how long, as in 30s, 10m or 1h; default 10m, at most 24h'),
  reset: toggle('end an earlier change now'),
} as const;

export const log = relayCommand({
  name: 'log',
  does: 'changes the log level for a limited time',
  about: `Changes the log level of a running relay for a limited time, in all its processes. After that, the level from its start applies
again.`,
  usage: '(--level LEVEL [--for TIME] | --reset)',
  flags,
  exit: '0, with the levels in force; 1 if the relay refuses or does not answer.',
  ask: ({ node, ...given }) => {
    const request = readRequest(given);
    if (!request.ok) return new UsageError(request.error);
    return async ({ rpc }) => {
      const response = await rpc.setLogLevel({ node, ...request.value });
      return answer(response, (view) => levelText(response, view));
    };
  },
});

/** Level empty: the one of the start again. Seconds 0: the relay's default. */
function readRequest({
  level,
  for: time,
  reset,
}: Omit<ValuesOf<typeof flags>, 'node'>): Result<{ readonly level: string; readonly forSeconds: number }> {
  if (reset) {
    return level === undefined && time === undefined
      ? ok({ level: '', forSeconds: 0 })
      : fail('--reset excludes --level and --for');
  }
  if (level === undefined) return fail(`--level is missing: expected ${anyOf(levels)}, or --reset`);
  if (time === 0) return fail('--for 0 is too short: to end an earlier change, use --reset');
  return ok({ level, forSeconds: (time ?? 0) / 1000 });
}

function levelText({ level, overrides }: SetLogLevelResponse, view: View): string {
  if (overrides.length === 0) return `log level ${level}`;
  const table = textTable(overrides, [['NODE', ({ node }) => node || '(all)'], 'level', 'until'], view);
  return `log level ${level}, with these exceptions\n${table}`;
}
