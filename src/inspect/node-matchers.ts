import type { NodeMatcher } from '../gen/envoy/type/matcher/v3/node_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { compileStringMatcher } from './string-matcher.ts';

/** In one request: each may be a pattern, and every client is compared with each. */
const maxMatchers = 8;

/**
 * Matches if one of the matchers does, or if there are none. Only the id of a node is kept, so nothing else can be
 * matched.
 */
export function compileNodeMatchers(
  matchers: readonly NodeMatcher[],
): Result<(nodeId: string) => boolean, GrpcStatus> {
  if (matchers.length > maxMatchers) {
    return refused(`expected at most ${maxMatchers}, got ${matchers.length}`);
  }
  const compiled: ((nodeId: string) => boolean)[] = [];
  for (const { nodeId, nodeMetadatas } of matchers) {
    if (nodeMetadatas.length > 0) {
      return refused('only node_id can be matched: the relay does not keep the metadata of nodes');
    }
    if (nodeId === undefined) continue;
    const matcher = compileStringMatcher(nodeId);
    if (!matcher.ok) return refused(matcher.error);
    compiled.push(matcher.value);
  }
  return ok((nodeId) => compiled.length === 0 || compiled.some((matches) => matches(nodeId)));
}

function refused(reason: string): Result<never, GrpcStatus> {
  return fail({ code: Code.INVALID_ARGUMENT, message: `node_matchers: ${reason}` });
}
