import type { Plain } from '../admin/plain.ts';
import type {
  ClassProblem,
  ClientClass,
  ListClassesResponse,
} from '../gen/distributary/admin/v1/fleet_pb.ts';

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
export function problemKey({ kind, type, what, class: of, parameters, error }: Plain<ClassProblem>): string {
  return JSON.stringify([kind, type, what, of, kind === 'MISSING' ? parameters : '', error]);
}

/** Those that concern the most streams, the rest left out. */
export function mostStreams(all: Plain<ListClassesResponse>): Plain<ListClassesResponse> {
  const problems = [...Map.groupBy(all.problems, ({ kind }) => kind).values()].flatMap(mostHit);
  const classes = all.classes.toSorted((a, b) => b.streams - a.streams).slice(0, most.classes);
  return { ...all, classes: within(classes), problems: within(problems) };
}

/** The causes with the most clients, whatever their classes: a cause that is cut in two would be counted wrongly. */
function mostHit(ofKind: readonly Plain<ClassProblem>[]): readonly Plain<ClassProblem>[] {
  const causes = [...Map.groupBy(ofKind, causeOf).values()].map((rows) => ({
    rows,
    clients: rows.reduce((sum, row) => sum + row.clients, 0),
  }));
  return causes
    .toSorted((a, b) => b.clients - a.clients)
    .slice(0, most.causes)
    .flatMap(({ rows }) => rows);
}

const causeOf = ({ type, what, error }: Plain<ClassProblem>): string => JSON.stringify([type, what, error]);

/** What several processes say, as one. */
export function mergeClasses(answers: readonly Plain<ListClassesResponse>[]): Plain<ListClassesResponse> {
  const classes = new Map<string, Plain<ClientClass>>();
  const problems = new Map<string, Plain<ClassProblem>>();
  for (const answer of answers) {
    for (const row of answer.classes) {
      const known = classes.get(row.id);
      classes.set(row.id, known === undefined ? row : sum(known, row));
    }
    for (const row of answer.problems) {
      const key = problemKey(row);
      const known = problems.get(key);
      problems.set(key, known === undefined ? row : both(known, row));
    }
  }
  // What a process has left out is counted at least once.
  const total = Math.max(classes.size, ...answers.map((answer) => answer.total));
  const streams = answers.reduce((count, answer) => count + answer.streams, 0);
  const missing = new Map<string, number>();
  for (const answer of answers)
    for (const [type, count] of Object.entries(answer.missing))
      missing.set(type, (missing.get(type) ?? 0) + count);
  return mostStreams({
    classes: [...classes.values()],
    total,
    streams,
    problems: [...problems.values()],
    missing: Object.fromEntries(missing),
  });
}

function sum(a: Plain<ClientClass>, b: Plain<ClientClass>): Plain<ClientClass> {
  return {
    ...a,
    streams: a.streams + b.streams,
    rejecting: a.rejecting + b.rejecting,
    unacknowledged: a.unacknowledged + b.unacknowledged,
    late: a.late + b.late,
  };
}

function both(a: Plain<ClassProblem>, b: Plain<ClassProblem>): Plain<ClassProblem> {
  return { ...a, clients: a.clients + b.clients, since: a.since < b.since ? a.since : b.since };
}
