import { create } from '@bufbuild/protobuf';
import type { ListedClient, ListedType } from '../downstream/services.ts';
import {
  type ClassProblem,
  ClassProblemSchema,
  type ClientClass,
  type ListClassesResponse,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { ProblemClass } from '../gen/distributary/admin/v1/problems_pb.ts';
import { type Clock, Paced } from '../model/clock.ts';
import { getOrMake } from '../model/maps.ts';
import type { MissingEntry } from '../model/subscription.ts';
import type { Pace, TimeSlices } from '../model/time-slices.ts';
import { parametersLabel, rejectedText } from '../observe/problems.ts';
import type { Relay } from '../relay.ts';
import { classOf, missingOf, summed, whyWithheld } from './client-list.ts';
import { rejectedVersions } from './resources.ts';
import type { Plain } from './service.ts';

/** For so long a client may leave a response unanswered, in milliseconds. */
const lateAfterMs = 30_000;
/** What is said of the subscriptions of a class: of how many of its streams, and how many of each type. */
const sampled = { streams: 3, perType: 8 };
/**
 * Distinct problems of a kind that are counted: clients can make as many as they like. One class has at most this share of
 * the places that are left, so there are some for the classes that come later.
 */
const counting = { most: 5000, share: 1 / 8 };
/** For so long, in milliseconds, several who ask get the same answer. */
export const freshMs = 1000;

/** Looks at the clients of this process, for operators. It costs nothing while nobody asks. */
export function fleetSurvey(
  relay: Relay,
  slices: TimeSlices,
  clock: Clock,
): () => Promise<Plain<ListClassesResponse>> {
  /** A first response does not say when it was sent: since when it was seen unanswered. */
  const unanswered = new WeakMap<ListedType, { readonly serial: number; readonly since: number }>();
  const survey = new Paced(clock, () => slices.run(look), freshMs);
  return () => survey.current();

  async function look(pace: Pace): Promise<Plain<ListClassesResponse>> {
    const classes = new Map<string, Plain<ClientClass>>();
    const problems = new CountedProblems();
    /** Those of a view have one list, which is looked through once. */
    const lacking = new Map<readonly MissingEntry[], ReturnType<typeof noClients>>();
    const missing = new Map<string, number>();
    let streams = 0;
    for (const stream of [...relay.clients()]) {
      await pace.yieldIfDue();
      streams++;
      if (stream.client === undefined) continue;
      const of = classOf(stream.client);
      const row = getOrMake(classes, of.id, () => newClass(of));
      row.streams++;
      if (row.streams <= sampled.streams) sample(stream, row);
      const found = new Set<'rejecting' | 'late'>();
      for (const type of stream.types) {
        countMissing(type, of);
        const state = type.subscription?.responses.state;
        const since = state === 'STALE' ? lateSince(type) : undefined;
        if (state === 'ERROR') {
          found.add('rejecting');
          await countRejections(type, of);
        } else if (since !== undefined) {
          found.add('late');
          problems.add(problem('LATE', type, of, since));
        }
      }
      for (const what of found) row[what]++;
    }
    for (const { type, classes: those } of lacking.values()) await countSubscriptions(type, those.values());
    const rows = [...classes.values()];
    return mostStreams({
      classes: rows,
      total: rows.length,
      streams,
      problems: problems.all(),
      missing: Object.fromEntries(missing),
    });

    function countMissing(type: ListedType, of: ClientClassId): void {
      const entries = type.subscription?.missing ?? [];
      if (entries.length === 0) return;
      const those = getOrMake(lacking, entries, () => noClients(type)).classes;
      getOrMake(those, of.id, () => ({ of, clients: 0 })).clients++;
    }

    async function countRejections(type: ListedType, of: ClientClassId): Promise<void> {
      const told = new Set<string>();
      for (const rejection of type.subscription?.responses.rejections ?? []) {
        await pace.yieldIfDue();
        const { name, message, version, at } = rejection;
        const found = {
          ...problem('REJECTED', type, of, at),
          name,
          error: message,
          version,
          what: rejectedText(rejection),
          ...rejectedVersions(rejection),
        };
        const key = problemKey(found);
        // A stream counts once, however many of its resources it has rejected so.
        if (!told.has(key)) problems.add(found);
        told.add(key);
      }
    }

    async function countSubscriptions(
      type: ListedType,
      those: Iterable<{ readonly of: ClientClassId; readonly clients: number }>,
    ): Promise<void> {
      const entries = missingOf(type, relay);
      const { short, url } = type.info;
      for (const { of, clients } of those) {
        missing.set(short, (missing.get(short) ?? 0) + clients * entries.length);
        for (const entry of entries) {
          await pace.yieldIfDue();
          const { name, since } = entry;
          const why = whyWithheld(relay, of.access, url, entry);
          const parameters = Object.fromEntries(entry.parameters.entries);
          const found = problem('MISSING', type, of, since);
          problems.add({ ...found, why, name, what: name, parameters, clients });
        }
      }
    }
  }

  /** Milliseconds since the epoch, if the client has not answered for long. */
  function lateSince(type: ListedType): number | undefined {
    const oldest = type.subscription?.responses.oldestOutstanding;
    if (oldest === undefined) return undefined;
    const now = clock.monotonic();
    let since = oldest.receivedAt;
    if (since === undefined) {
      const seen = unanswered.get(type);
      since = seen?.serial === oldest.serial ? seen.since : now;
      if (seen?.serial !== oldest.serial) unanswered.set(type, { serial: oldest.serial, since });
    }
    return now - since < lateAfterMs ? undefined : clock.now() - (now - since);
  }
}

/** Clients that lack the same, by their classes. `type`: of one of them. */
const noClients = (type: ListedType) => ({
  type,
  classes: new Map<string, { readonly of: ClientClassId; clients: number }>(),
});

type ClientClassId = ReturnType<typeof classOf>;

const newClass = ({ id, parameters, access }: ClientClassId): Plain<ClientClass> => ({
  id,
  parameters: Object.fromEntries(parameters.entries),
  restricted: !access.unrestricted,
  streams: 0,
  rejecting: 0,
  late: 0,
  subscriptions: [],
});

function sample(stream: ListedClient, { subscriptions }: Plain<ClientClass>): void {
  for (const { info, selection } of stream.types) {
    const { short: type } = info;
    const names = new Set(subscriptions.filter((one) => one.type === type).map(({ name }) => name));
    for (const { selector: name } of selection.entries.values()) {
      if (names.size >= sampled.perType) break;
      if (names.has(name)) continue;
      names.add(name);
      subscriptions.push({ type, name });
    }
  }
}

function problem(
  kind: string,
  { info }: ListedType,
  { id, parameters }: ClientClassId,
  since: number,
): Plain<ClassProblem> {
  return {
    ...nothingYet,
    kind,
    type: info.short,
    class: id,
    parameters: Object.fromEntries(parameters.entries),
    clients: 1,
    since: new Date(since).toISOString(),
  };
}

const { $typeName: _, ...nothingYet } = create(ClassProblemSchema);

/** Each problem once, with its clients, as far as there is room. */
class CountedProblems {
  readonly #known = new Map<string, Plain<ClassProblem>>();
  /** How many there are, by kind, and by kind and class. */
  readonly #counts = new Map<string, number>();

  all(): Plain<ClassProblem>[] {
    return [...this.#known.values()];
  }

  add(found: Plain<ClassProblem>): void {
    const key = problemKey(found);
    const known = this.#known.get(key);
    if (known === undefined) {
      if (this.#hasRoom(found)) this.#known.set(key, found);
      return;
    }
    known.clients += found.clients;
    if (found.since < known.since) known.since = found.since;
  }

  #hasRoom({ kind, class: of }: Plain<ClassProblem>): boolean {
    const ofClass = `${kind} ${of}`;
    const [all, own] = [this.#counts.get(kind) ?? 0, this.#counts.get(ofClass) ?? 0];
    if (own >= counting.share * (counting.most - all)) return false;
    this.#counts.set(kind, all + 1).set(ofClass, own + 1);
    return true;
  }
}

/** The most that an answer lists: classes, and causes of problems of each kind, each with its classes. */
const most = { classes: 500, causes: 100 };

/** Of classes, and of problems, as JSON: the page of each browser holds them too. */
const mostBytes = 2 << 20;

function within<T>(rows: readonly T[]): T[] {
  let left = mostBytes;
  const end = rows.findIndex((row) => {
    left -= Buffer.byteLength(JSON.stringify(row));
    return left < 0;
  });
  return rows.slice(0, end < 0 ? undefined : end);
}

/** Clients with the same problem have the same key. */
function problemKey({ kind, type, what, class: of, parameters, error }: Plain<ClassProblem>): string {
  return JSON.stringify([kind, type, what, of, kind === 'MISSING' ? parameters : '', error]);
}

/** Those that concern the most streams, the rest left out. */
function mostStreams(all: Plain<ListClassesResponse>): Plain<ListClassesResponse> {
  const problems = [...Map.groupBy(all.problems, ({ kind }) => kind).values()].flatMap(mostHit);
  const classes = all.classes.toSorted((a, b) => b.streams - a.streams).slice(0, most.classes);
  return { ...all, classes: within(classes), problems: within(problems) };
}

/** The causes with the most clients, of each class its share: a cause that is cut in two would be counted wrongly. */
function mostHit(ofKind: readonly Plain<ClassProblem>[]): readonly Plain<ClassProblem>[] {
  const causes = [...Map.groupBy(ofKind, causeOf).values()].map((rows) => ({
    rows,
    clients: rows.reduce((sum, row) => sum + row.clients, 0),
  }));
  const sorted = causes.toSorted((a, b) => b.clients - a.clients);
  // A client can make any number of causes, and drives out nobody else's.
  return fairShare(sorted, ({ rows: [first] }) => classOfProblem(first), most.causes).flatMap(
    ({ rows }) => rows,
  );
}

const causeOf = ({ type, what, error }: Plain<ClassProblem>): string => JSON.stringify([type, what, error]);

/** Equal for what is of the same class, also where it has no id. */
export const classOfProblem = (one: Pick<Plain<ProblemClass>, 'class' | 'parameters'> | undefined): string =>
  one?.class || parametersLabel(one?.parameters ?? {});

/**
 * As many as there is room for, and nobody's are all of them: the first of each group, then the second of each, and so
 * on.
 */
export function fairShare<One>(
  sorted: readonly One[],
  groupOf: (one: One) => string,
  most: number,
): readonly One[] {
  const counts = new Map<string, number>();
  const placed = sorted.map((one) => {
    const group = groupOf(one);
    const place = counts.get(group) ?? 0;
    counts.set(group, place + 1);
    return { one, place };
  });
  return placed
    .toSorted((a, b) => a.place - b.place)
    .slice(0, most)
    .map(({ one }) => one);
}

/** The rows of several answers as one list: those with the same key are one. */
export function mergedRows<Row>(
  rows: Iterable<Row>,
  keyOf: (row: Row) => string,
  merge: (a: Row, b: Row) => Row,
): Row[] {
  const byKey = new Map<string, Row>();
  for (const row of rows) {
    const key = keyOf(row);
    const known = byKey.get(key);
    byKey.set(key, known === undefined ? row : merge(known, row));
  }
  return [...byKey.values()];
}

/** What several processes say, as one. */
export function mergeClasses(answers: readonly Plain<ListClassesResponse>[]): Plain<ListClassesResponse> {
  const classes = mergedRows(
    answers.flatMap((answer) => answer.classes),
    ({ id }) => id,
    summed('streams', 'rejecting', 'late'),
  );
  const counts = mergedRows(
    answers.flatMap((answer) => Object.entries(answer.missing)),
    ([type]) => type,
    ([type, a], [, b]): [string, number] => [type, a + b],
  );
  return mostStreams({
    classes,
    // What a process has left out is counted at least once.
    total: Math.max(classes.length, ...answers.map((answer) => answer.total)),
    streams: answers.reduce((count, answer) => count + answer.streams, 0),
    problems: mergedRows(
      answers.flatMap((answer) => answer.problems),
      problemKey,
      moreClients,
    ),
    missing: Object.fromEntries(counts),
  });
}

/** What more clients say too. Times are RFC 3339 in UTC, so their order is that of the texts. */
function moreClients<Row extends { readonly clients: number; readonly since: string }>(a: Row, b: Row): Row {
  return { ...a, clients: a.clients + b.clients, since: a.since < b.since ? a.since : b.since };
}
