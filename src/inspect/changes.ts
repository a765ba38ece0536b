import { create } from '@bufbuild/protobuf';
import { Listed } from '../admin/answers.ts';
import { optionalType, type Request, valueOf } from '../admin/requests.ts';
import type { Answer, Call, Changes } from '../admin/service.ts';
import {
  ChangeSchema,
  type DiffResponseSchema,
  type HistoryResponseSchema,
} from '../gen/distributary/admin/v1/changes_pb.ts';
import { noSuchRevision, verdictOf } from '../history/history.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Change } from '../model/change.ts';
import { systemClock } from '../model/clock.ts';
import { ok } from '../model/result.ts';
import { type Pace, sortedInSlices, TimeSlices } from '../model/time-slices.ts';
import { typeInfo } from '../model/types.ts';
import { canonicalName } from '../model/xdstp.ts';
import { invalid, rpcError } from '../wire/connect.ts';
import { Code } from '../wire/grpc-status.ts';
import { changeMessage } from './change-message.ts';
import type { ChangesOptions } from './changes-options.ts';
import { type Comparables, type Difference, differenceOf, differenceRow, fieldsOf } from './comparable.ts';
import { DiffSides, type Sides } from './diff-sides.ts';
import { rollback } from './rollback.ts';
import { waitingState } from './rollout-status.ts';

/** Of a comparison, in one answer. */
const maxDifferences = 10_000;

/** What has changed, what differs, and the way back. */
export class ChangesInspection implements Changes {
  readonly #options: ChangesOptions;
  readonly #sides: DiffSides;
  readonly #slices = new TimeSlices(systemClock);

  constructor(options: ChangesOptions) {
    this.#options = options;
    this.#sides = new DiffSides(options);
  }

  get revision(): number {
    return this.#options.history.lastRevision;
  }

  history({ type, name, limit, before }: Request<'history'>): Listed<typeof HistoryResponseSchema> {
    const { history } = this.#options;
    const only = optionalType(type);
    const most = limit === 0 ? Infinity : limit;
    const all = [...history.changes()].toReversed();
    const made: number[] = [];
    const report = this.#options.rollout.report();
    const rows = Iterator.from(all).map((change) => {
      if (made.length >= most || (before > 0 && change.revision >= before)) return undefined;
      if (only !== undefined && change.type !== only) return undefined;
      if (name !== '' && !change.names.some((one) => one.name === name)) return undefined;
      made.push(change.revision);
      return create(ChangeSchema, changeMessage(change, waitingState(change, report)));
    });
    return new Listed({}, { field: 'changes', rows }, (written, more) => ({
      revision: history.lastRevision,
      nextBefore: more ? (made[written - 1] ?? 0) : 0,
    }));
  }

  /** NOT_FOUND: no such revision; FAILED_PRECONDITION: it was discarded. */
  change(revision: number): Change {
    const { history } = this.#options;
    const change = history.get(revision);
    if (change === undefined) return valueOf(noSuchRevision(history, revision));
    if (verdictOf(change) !== 'DISCARDED') return change;
    const message = `revision ${revision} was discarded: nobody will get it`;
    throw rpcError({ code: Code.FAILED_PRECONDITION, message });
  }

  async diff({ from, to, type, name, offset }: Request<'diff'>): Promise<Listed<typeof DiffResponseSchema>> {
    const only = optionalType(type);
    const canonical = only === undefined || name === '' ? ok(name) : canonicalName(name, only);
    if (!canonical.ok) throw invalid(canonical.error);
    const sides = await this.#sides.of(from, to, this.#slices);
    const names = new Set(name === '' ? [] : [name, canonical.value]);
    const found = await this.#slices.run((pace) => differencesOf(sides, only, names, pace));
    const page = found.slice(offset, offset + maxDifferences);
    const rows = names.size === 0 ? Iterator.from(page).map(differenceRow) : this.#withFields(page);
    return new Listed({ total: found.length }, { field: 'differences', rows }, (written) => ({
      nextOffset: written > 0 && offset + written < found.length ? offset + written : 0,
    }));
  }

  /** Made when the ones before are written. */
  async *#withFields(differences: readonly Difference[]) {
    for (const difference of differences) {
      const variants = await this.#slices.run((pace) => fieldsOf(difference, pace));
      yield [Object.assign(differenceRow(difference), { variants })];
    }
  }

  rollback(request: Request<'rollback'>, { operator }: Call): Answer<'rollback'> {
    return rollback(this.#options, request, operator);
  }
}

/** `names` empty: every name. */
async function differencesOf(
  { from, to }: Sides,
  only: TypeUrl | undefined,
  names: ReadonlySet<string>,
  pace: Pace,
): Promise<readonly Difference[]> {
  // Types in the order of ADS.
  const types = [...new Set([...from.keys(), ...to.keys()])].toSorted(
    (a, b) => typeInfo(a).order - typeInfo(b).order,
  );
  const differences: (readonly Difference[])[] = [];
  for (const type of types) {
    if (only !== undefined && only !== type) continue;
    const [before, after] = [from.get(type) ?? NOTHING, to.get(type) ?? NOTHING];
    differences.push(await differencesOfType(type, before, after, names, pace));
  }
  return differences.flat();
}

const NOTHING: ReadonlyMap<string, Comparables> = new Map();

/** By name. */
async function differencesOfType(
  type: TypeUrl,
  before: ReadonlyMap<string, Comparables>,
  after: ReadonlyMap<string, Comparables>,
  only: ReadonlySet<string>,
  pace: Pace,
): Promise<readonly Difference[]> {
  const found: Difference[] = [];
  for (const name of new Set([...before.keys(), ...after.keys()])) {
    await pace.yieldIfDue();
    if (only.size > 0 && !only.has(name)) continue;
    const difference = differenceOf(type, name, before.get(name) ?? [], after.get(name) ?? []);
    if (difference !== undefined) found.push(difference);
  }
  return sortedInSlices(found, (a, b) => (a.name < b.name ? -1 : 1), pace);
}
