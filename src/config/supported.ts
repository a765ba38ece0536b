import { read } from './schema-parts.ts';
import type { Path, UnplacedProblem } from './source.ts';

interface Unsupported {
  /** `*` stands for every entry of a list. */
  readonly path: readonly string[];
  readonly set: (value: unknown) => boolean;
}

const present = (value: unknown): boolean => value !== undefined;

/** Keys of the schema that have no effect yet: refused, never ignored. A key that works leaves this list. */
const unsupported: readonly Unsupported[] = [
  { path: ['tracing', 'otlp_endpoint'], set: (value) => present(value) && value !== '' },
];

/** Reads the raw values, so it works even if others are wrong. */
export function checkSupported(file: unknown): readonly UnplacedProblem[] {
  return unsupported.flatMap(({ path, set }) =>
    find(file, path)
      .filter(({ value }) => set(value))
      .map((found) => ({ path: found.path, message: 'not supported yet: leave it out', aboutKey: true })),
  );
}

interface Found {
  readonly path: Path;
  readonly value: unknown;
}

function find(value: unknown, path: readonly string[], above: Path = []): readonly Found[] {
  const [step, ...rest] = path;
  if (step === undefined) return [{ path: above, value }];
  if (step !== '*') return find(read(value, step), rest, [...above, step]);
  const items: readonly unknown[] = Array.isArray(value) ? value : [];
  return items.flatMap((item, index) => find(item, rest, [...above, index]));
}
