import { logLevelChange, type Request } from '../admin/requests.ts';
import type { Answer } from '../admin/service.ts';
import type { Log } from '../observe/log.ts';
import { type LogLevels, maxOverrides } from '../observe/log-levels.ts';
import { rpcError } from '../wire/connect.ts';
import { Code } from '../wire/grpc-status.ts';

/** An operator changes the log level for a time; the log says who has done so. */
export function setLogLevel(
  request: Request<'setLogLevel'>,
  operator: string,
  levels: LogLevels,
  log: Log,
): Answer<'setLogLevel'> {
  const { level, node, milliseconds } = logLevelChange(request);
  // The field is not called `node`: the line is about the log, and not written by the level for this node.
  const said = { who: operator, level: level ?? levels.initial, for_node: node ?? 'all' };
  if (level === undefined) {
    levels.end(node);
    log.info('an operator has reset the log level', said);
    return inForce(levels);
  }
  const say = (): void =>
    log.info('an operator changes the log level', { ...said, seconds: milliseconds / 1000 });
  // Once, by the level that writes more: before a change to `error`, after a change to `debug`.
  const isWritten = levels.enables('info');
  if (isWritten) say();
  if (!levels.override({ node, level, until: Date.now() + milliseconds })) {
    const message = `${maxOverrides} nodes have a log level of their own, the maximum: reset one of them, or wait`;
    log.warn('a log level was refused', { ...said, error: message });
    throw rpcError({ code: Code.RESOURCE_EXHAUSTED, message });
  }
  if (!isWritten) say();
  return inForce(levels);
}

function inForce(levels: LogLevels): Answer<'setLogLevel'> {
  return {
    level: levels.initial,
    overrides: levels.overrides().map(({ node, level, until }) => ({
      node: node ?? '',
      level,
      until: new Date(until).toISOString(),
    })),
  };
}
