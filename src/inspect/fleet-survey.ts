import type { Plain } from '../admin/ports.ts';
import type { ListedClient, ListedType } from '../downstream/services.ts';
import type {
  ClassProblem,
  ClassSubscription,
  ClientClass,
  ListClassesResponse,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { Clock } from '../model/clock.ts';
import type { Parameters } from '../model/parameters.ts';
import { isCollection } from '../model/selection.ts';
import type { TimeSlices } from '../model/time-slices.ts';
import { rejectedText } from '../observe/rejection-text.ts';
import type { Relay } from '../relay.ts';
import type { View } from '../views/view.ts';
import { type ClientClassId, classOf } from './client-class.ts';
import { mostStreams, problemKey } from './merge-classes.ts';

/** For so long a client may leave a response unanswered, in milliseconds. */
const lateAfterMs = 30_000;
/** What is said of the subscriptions of a class: of how many of its streams, and how many of each type. */
const sampled = { streams: 3, perType: 8 };
/** Distinct problems that are counted: clients can make as many as they like. */
const mostProblems = 5000;
/** For so long, in milliseconds, several who ask get the same answer. */
const freshMs = 1000;

interface Unanswered {
  readonly serial: number;
  readonly since: number;
}

interface MissingNames {
  readonly generation: number;
  readonly names: readonly (readonly [name: string, parameters: Parameters])[];
}

interface ClassCount {
  readonly row: Plain<ClientClass>;
  readonly named: Map<string, number>;
  sampledStreams: number;
}

/** Looks at the clients of this process, for operators. It costs nothing while nobody asks. */
export class FleetSurvey {
  readonly #relay: Relay;
  readonly #slices: TimeSlices;
  readonly #clock: Clock;
  /** A first response does not say when it was sent: since when it was seen unanswered. */
  readonly #unanswered = new WeakMap<ListedType, Unanswered>();
  /** A view that has not changed is not looked through again. */
  readonly #missing = new WeakMap<View, MissingNames>();
  #last: { readonly at: number; readonly answer: Promise<Plain<ListClassesResponse>> } | undefined;

  constructor(relay: Relay, slices: TimeSlices, clock: Clock) {
    this.#relay = relay;
    this.#slices = slices;
    this.#clock = clock;
  }

  classes(): Promise<Plain<ListClassesResponse>> {
    const at = this.#clock.monotonic();
    if (this.#last === undefined || at - this.#last.at >= freshMs) this.#last = { at, answer: this.#look() };
    return this.#last.answer;
  }

  #look(): Promise<Plain<ListClassesResponse>> {
    return this.#slices.run(async (pace) => {
      const classes = new Map<string, ClassCount>();
      const problems = new Map<string, Plain<ClassProblem>>();
      let streams = 0;
      for (const stream of [...this.#relay.clients()]) {
        await pace.yieldIfDue();
        streams++;
        if (stream.client !== undefined) this.#count(stream, classOf(stream.client), classes, problems);
      }
      for (const view of [...this.#relay.views.all()]) {
        await pace.yieldIfDue();
        this.#countMissing(view, problems);
      }
      const rows = [...classes.values()].map(({ row }) => row);
      return mostStreams({ classes: rows, total: rows.length, streams, problems: [...problems.values()] });
    });
  }

  #count(
    stream: ListedClient,
    of: ClientClassId,
    classes: Map<string, ClassCount>,
    problems: Map<string, Plain<ClassProblem>>,
  ): void {
    const known = classes.get(of.id) ?? newClass(of);
    classes.set(of.id, known);
    const { row } = known;
    row.streams++;
    if (known.sampledStreams < sampled.streams) sample(stream, known);
    let [rejects, unacknowledged, late] = [false, false, false];
    for (const type of stream.types) {
      const state = type.subscription?.responses.state;
      if (state === 'ERROR') {
        rejects = true;
        countRejections(type, of, problems);
      } else if (state === 'STALE') {
        unacknowledged = true;
        const since = this.#lateSince(type);
        if (since === undefined) continue;
        late = true;
        add(problems, problem('LATE', type, of, since));
      }
    }
    row.rejecting += Number(rejects);
    row.unacknowledged += Number(unacknowledged);
    row.late += Number(late);
  }

  /** Milliseconds since the epoch, if the client has not answered for long. */
  #lateSince(type: ListedType): number | undefined {
    const oldest = type.subscription?.responses.oldestOutstanding;
    if (oldest === undefined) return undefined;
    const now = this.#clock.monotonic();
    let since = oldest.receivedAt;
    if (since === undefined) {
      const seen = this.#unanswered.get(type);
      since = seen?.serial === oldest.serial ? seen.since : now;
      if (seen?.serial !== oldest.serial) this.#unanswered.set(type, { serial: oldest.serial, since });
    }
    return now - since < lateAfterMs ? undefined : this.#clock.now() - (now - since);
  }

  #countMissing(view: View, problems: Map<string, Plain<ClassProblem>>): void {
    const known = this.#missing.get(view);
    const missing = known?.generation === view.generation ? known : missingNames(view);
    this.#missing.set(view, missing);
    const clients = view.subscribers.size;
    if (clients === 0) return;
    for (const [name, parameters] of missing.names) {
      add(problems, {
        kind: 'MISSING',
        type: view.info.short,
        name,
        class: '',
        parameters: Object.fromEntries(parameters.entries),
        clients,
        since: '',
        error: '',
        version: '',
        what: name,
      });
    }
  }
}

function newClass({ id, parameters, restricted }: ClientClassId): ClassCount {
  return {
    row: {
      id,
      parameters: Object.fromEntries(parameters.entries),
      restricted,
      streams: 0,
      rejecting: 0,
      unacknowledged: 0,
      late: 0,
      subscriptions: [],
    },
    named: new Map(),
    sampledStreams: 0,
  };
}

function sample(stream: ListedClient, known: ClassCount): void {
  known.sampledStreams++;
  const { named, row } = known;
  for (const { info, selection } of stream.types) {
    for (const { selector } of selection.entries.values()) {
      const count = named.get(info.short) ?? 0;
      if (count >= sampled.perType) break;
      const same = ({ type, name }: Plain<ClassSubscription>): boolean =>
        type === info.short && name === selector;
      if (row.subscriptions.some(same)) continue;
      named.set(info.short, count + 1);
      row.subscriptions.push({ type: info.short, name: selector });
    }
  }
}

function countRejections(
  type: ListedType,
  of: ClientClassId,
  problems: Map<string, Plain<ClassProblem>>,
): void {
  const told = new Set<string>();
  for (const { name, message, version, at, changes } of type.subscription?.responses.rejections ?? []) {
    const { names, total: changed, removal } = changes;
    const what = rejectedText({ name, names, changed, removal });
    const found = { ...problem('REJECTED', type, of, at), name, error: message, version, what };
    const key = problemKey(found);
    // A stream counts once, however many of its resources it has rejected so.
    if (!told.has(key)) add(problems, found);
    told.add(key);
  }
}

function problem(
  kind: string,
  { info }: ListedType,
  { id, parameters }: ClientClassId,
  since: number,
): Plain<ClassProblem> {
  return {
    kind,
    type: info.short,
    name: '',
    class: id,
    parameters: Object.fromEntries(parameters.entries),
    clients: 1,
    since: new Date(since).toISOString(),
    error: '',
    version: '',
    what: '',
  };
}

function add(problems: Map<string, Plain<ClassProblem>>, found: Plain<ClassProblem>): void {
  const key = problemKey(found);
  const known = problems.get(key);
  if (known === undefined) {
    if (problems.size < mostProblems) problems.set(key, found);
    return;
  }
  known.clients += found.clients;
  if (found.since < known.since) known.since = found.since;
}

/** What is subscribed by name, and does not exist. */
function missingNames(view: View): MissingNames {
  const names: (readonly [string, Parameters])[] = [];
  for (const { selector, locator, parameters, spelling } of view.selection.entries.values()) {
    if (isCollection(selector)) continue;
    if (view.itemOf(locator, parameters, spelling)?.last.value === 'absent')
      names.push([spelling, parameters]);
  }
  return { generation: view.generation, names };
}
