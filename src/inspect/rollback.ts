import { optionalType, type Request } from '../admin/requests.ts';
import type { Answer } from '../admin/service.ts';
import { reachable, releasedAt, verdictOf } from '../history/history.ts';
import { type ResourceName, type TypeUrl, typeUrl } from '../model/brand.ts';
import type { Content } from '../model/change.ts';
import { systemClock } from '../model/clock.ts';
import { unknownWord } from '../model/suggest.ts';
import { typeInfo } from '../model/types.ts';
import { rpcError } from '../wire/connect.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { ChangesOptions } from './changes-options.ts';

/** Gives everybody what there was at an earlier revision, and freezes it. Nothing is changed if anything is wrong. */
export function rollback(
  options: ChangesOptions,
  request: Request<'rollback'>,
  operator: string,
): Answer<'rollback'> {
  const { relay, history, rollout, log } = options;
  const query = rollbackQuery(request);
  const { to, upstream, reason } = query;
  const audited = { who: operator, what: 'rollback', to, upstream: upstream ?? 'all', reason };
  const refusal = refusalOf(options, query);
  if (refusal !== undefined) {
    log.warn('a rollback was refused', { ...audited, error: refusal.message });
    throw rpcError(refusal);
  }
  const state = releasedAt(history, to);
  const said = `rollback to revision ${to}: ${reason}`;
  let changed = 0;
  for (const type of typesOf(options, query)) {
    const now = relay.store.releasedContents(type);
    const contents = new Map<ResourceName, Content>();
    for (const [name, content] of [...now, ...(state.get(type) ?? [])]) {
      const own = content.filter(({ variant }) => upstream === undefined || variant.upstream === upstream);
      if (own.length > 0) contents.set(name, own);
      else contents.delete(name);
    }
    const filter = { type, upstream };
    const last = history.lastRevision;
    relay.gate.replace(type, contents, filter, said);
    changed += history.get(last + 1)?.names.length ?? 0;
    rollout.freeze(filter, { operator, reason: said });
  }
  if (changed === 0) history.add(nothingChanged(options, query, said));
  const revision = history.lastRevision;
  log.info('an operator has rolled back', { ...audited, revision, changed });
  return { revision, changed };
}

/** Everybody has that already, and it is frozen from now on: the history says so all the same. */
function nothingChanged(options: ChangesOptions, query: RollbackQuery, reason: string) {
  const types = typesOf(options, query);
  // A change is of one type: of those that are frozen, one that clients have something of.
  const [first = ''] = types;
  const type = types.find((one) => options.relay.store.releasedContents(one).size > 0) ?? typeUrl(first);
  const at = systemClock.now();
  const counts = { added: 0, changed: 0, removed: 0 };
  return { type, upstream: '', ...counts, names: [], first: false, at, releasedAt: at, reason };
}

type RollbackQuery = ReturnType<typeof rollbackQuery>;

/** Undefined: every upstream, every gated type. */
function rollbackQuery({ to, reason, upstream, type }: Request<'rollback'>) {
  return { to, reason, upstream: upstream === '' ? undefined : upstream, type: optionalType(type) };
}

/** In the order of ADS. */
function typesOf({ gatedTypes }: ChangesOptions, { type }: RollbackQuery): readonly TypeUrl[] {
  if (type !== undefined) return [type];
  return [...gatedTypes()].toSorted((a, b) => typeInfo(a).order - typeInfo(b).order);
}

function refusalOf(options: ChangesOptions, query: RollbackQuery): GrpcStatus | undefined {
  const { history, relay, gatedTypes } = options;
  const { to, reason, upstream, type } = query;
  if (reason.trim() === '') return refused('a reason is missing: it is logged, and shown in the history');
  if (upstream !== undefined && !relay.upstreams.some(({ name }) => name === upstream)) {
    const names = relay.upstreams.map(({ name }) => name);
    const message = unknownWord('upstream', upstream, names);
    return { code: Code.NOT_FOUND, message };
  }
  if (type !== undefined && !gatedTypes().has(type)) {
    const gated = [...gatedTypes()].map((url) => typeInfo(url).short).join(', ');
    return refused(`${typeInfo(type).short} is not gated; gated types (rollout.types): ${gated}`);
  }
  const reached = reachable(history, to);
  if (!reached.ok) return reached.error;
  const forgotten = forgottenTypes(options, query);
  if (forgotten.length > 0) {
    const types = forgotten.join(', ');
    const message = `the state of ${types} at revision ${to} is not known: secrets are not kept across a restart (cache.persistence.secrets), and the last restart was after revision ${history.restoredRevision}; roll back other types one by one (type)`;
    return { code: Code.FAILED_PRECONDITION, message };
  }
  const change = history.get(to);
  const verdict = change === undefined ? 'RELEASED' : verdictOf(change);
  if (verdict === 'RELEASED') return undefined;
  const message = `revision ${to} was never released (${verdict}): roll back to an earlier one`;
  return { code: Code.FAILED_PRECONDITION, message };
}

/** What clients have of these types was never persisted, and the relay was started after the revision. */
function forgottenTypes(options: ChangesOptions, query: RollbackQuery): readonly string[] {
  const { history, isPersisted, relay } = options;
  if (query.to > history.restoredRevision) return [];
  return typesOf(options, query)
    .filter((type) => !isPersisted(type) && relay.store.releasedContents(type).size > 0)
    .map((type) => typeInfo(type).short);
}

const refused = (message: string): GrpcStatus => ({ code: Code.INVALID_ARGUMENT, message });
