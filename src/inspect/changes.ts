import type { Changes, DiffQuery, HistoryQuery, RollbackQuery } from '../admin/changes-ports.ts';
import type { Plain } from '../admin/plain.ts';
import { withinAnswer } from '../admin/rpc-parts.ts';
import type {
  Change as ChangeMessage,
  DiffResponse,
  HistoryResponse,
  NameDifference,
  RollbackResponse,
} from '../gen/distributary/admin/v1/changes_pb.ts';
import { verdictOf } from '../history/history.ts';
import { noSuchRevision } from '../history/state-at.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Change } from '../model/change.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { typeInfo } from '../model/types.ts';
import { canonicalName } from '../model/xdstp.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { changeMessage } from './change-message.ts';
import type { ChangesOptions } from './changes-options.ts';
import { type ComparableSide, differenceOf } from './comparable.ts';
import { DiffSides, type Sides } from './diff-sides.ts';
import { rollback } from './rollback.ts';

/** Of a comparison, that are listed. */
const maxDifferences = 10_000;

/** What has changed, what differs, and the way back. */
export class ChangesInspection implements Changes {
  readonly #options: ChangesOptions;
  readonly #sides: DiffSides;

  constructor(options: ChangesOptions) {
    this.#options = options;
    this.#sides = new DiffSides(options);
  }

  history({ type, name, limit, before = 0 }: HistoryQuery): Plain<HistoryResponse> {
    const { history } = this.#options;
    const changes: Plain<ChangeMessage>[] = [];
    for (const change of [...history.changes()].toReversed()) {
      if (changes.length >= limit) break;
      if (before > 0 && change.revision >= before) continue;
      if (type !== undefined && change.type !== type) continue;
      if (name !== '' && !change.names.some((one) => one.name === name)) continue;
      changes.push(changeMessage(change));
    }
    const shown = withinAnswer(changes);
    const nextBefore = shown.length < changes.length ? (shown.at(-1)?.revision ?? 0) : 0;
    return { changes: shown, revision: history.lastRevision, nextBefore };
  }

  change(revision: number): Result<Change, GrpcStatus> {
    const { history } = this.#options;
    const change = history.get(revision);
    if (change === undefined) return noSuchRevision(history, revision);
    if (verdictOf(change) !== 'DISCARDED') return ok(change);
    const message = `revision ${revision} was discarded: nobody will get it`;
    return fail({ code: Code.FAILED_PRECONDITION, message });
  }

  async diff(query: DiffQuery): Promise<Result<Plain<DiffResponse>, GrpcStatus>> {
    const name = nameOf(query);
    if (!name.ok) return fail({ code: Code.INVALID_ARGUMENT, message: name.error });
    const sides = await this.#sides.of(query.from, query.to);
    if (!sides.ok) return sides;
    const names = new Set(query.name === '' ? [] : [query.name, name.value]);
    const differences: Plain<NameDifference>[] = [];
    let total = 0;
    for (const found of differencesOf(sides.value, query.type, names)) {
      total++;
      if (differences.length < maxDifferences) differences.push(found);
    }
    return ok({ differences: withinAnswer(differences), total });
  }

  rollback(query: RollbackQuery): Result<Plain<RollbackResponse>, GrpcStatus> {
    return rollback(this.#options, query);
  }
}

/** `names` empty: every name, and no fields. */
function* differencesOf(
  { from, to }: Sides,
  only: TypeUrl | undefined,
  names: ReadonlySet<string>,
): Iterable<Plain<NameDifference>> {
  for (const [type, all] of namesOf(from, to)) {
    if (only !== undefined && only !== type) continue;
    for (const name of all) {
      if (names.size > 0 && !names.has(name)) continue;
      const values = { from: from.get(type)?.get(name) ?? [], to: to.get(type)?.get(name) ?? [] };
      const found = differenceOf(type, name, values, names.size > 0);
      if (found !== undefined) yield found;
    }
  }
}

/** In canonical spelling, of the type if there is one. */
function nameOf({ type, name }: DiffQuery): Result<string> {
  return type === undefined || name === '' ? ok(name) : canonicalName(name, type);
}

/** Types in the order of ADS. */
function namesOf(
  from: ComparableSide,
  to: ComparableSide,
): readonly (readonly [TypeUrl, ReadonlySet<string>])[] {
  const types = [...new Set([...from.keys(), ...to.keys()])].toSorted(
    (a, b) => typeInfo(a).order - typeInfo(b).order,
  );
  return types.map((type) => [
    type,
    new Set([...(from.get(type)?.keys() ?? []), ...(to.get(type)?.keys() ?? [])].toSorted()),
  ]);
}

const notHere: Result<never, GrpcStatus> = fail({
  code: Code.UNIMPLEMENTED,
  message: 'a worker keeps no history: ask its primary',
});

/** Of a process that records nothing. */
export const NO_CHANGES: Changes = {
  history: () => ({ changes: [], revision: 0, nextBefore: 0 }),
  change: () => notHere,
  diff: () => notHere,
  rollback: () => notHere,
};
