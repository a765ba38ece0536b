import { Code, ConnectError, type ServiceImpl } from '@connectrpc/connect';
import type { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import { type SetLogLevelRequest, SetLogLevelResponseSchema } from '../gen/distributary/admin/v1/log_pb.ts';
import { expectedText, unknownWord } from '../model/suggest.ts';
import { isLogLevel, type LogLevel, levels } from '../observe/log-levels.ts';
import { operatorKey } from './operations.ts';
import type { Inspector, LogLevelChange } from './ports.ts';
import { type Answer, valueOf } from './rpc-parts.ts';

const defaultSeconds = 600;
const longestSeconds = 86_400;
/** Characters. Clients choose their node ids, and the relay takes longer ones; nobody chases those. */
const longestNode = 1024;

export function logMethods(
  inspector: Pick<Inspector, 'setLogLevel'>,
  answer: Answer,
): Pick<ServiceImpl<typeof AdminService>, 'setLogLevel'> {
  return {
    setLogLevel: (request, context) =>
      answer(SetLogLevelResponseSchema, context, async () =>
        valueOf(await inspector.setLogLevel(changeOf(request, context.values.get(operatorKey)))),
      ),
  };
}

function changeOf({ level, node, forSeconds }: SetLogLevelRequest, operator: string): LogLevelChange {
  if (!(forSeconds >= 0 && forSeconds <= longestSeconds)) {
    throw invalid(`for_seconds: ${expectedText(`0 to ${longestSeconds}`, forSeconds)}`);
  }
  if (node.length > longestNode) {
    throw invalid(`node: expected at most ${longestNode} characters, got ${node.length}`);
  }
  return {
    level: levelOf(level),
    node: node === '' ? undefined : node,
    milliseconds: (forSeconds === 0 ? defaultSeconds : forSeconds) * 1000,
    operator,
  };
}

function levelOf(text: string): LogLevel | undefined {
  if (text === '' || isLogLevel(text)) return text === '' ? undefined : text;
  throw invalid(unknownWord('level', text, levels));
}

const invalid = (message: string): ConnectError => new ConnectError(message, Code.InvalidArgument);
