/** Which cases a run has: set by `npm test` and `npm run test:more`. */
const extent = process.env['TESTS_EXTENT'];

/**
 * The cases of a table of which one is enough to see most faults, as one kind of relay of two: `npm test` runs the first,
 * `npm run test:more` the others, and `npx mocha FILE` all.
 */
export function cases<T>(first: T, ...others: readonly T[]): readonly T[] {
  if (extent === 'test') return [first];
  return extent === 'more' ? others : [first, ...others];
}

/** A test of `npm run test:more`, and of `npx mocha FILE`: it takes long, and others of its file see most faults. */
export function longTest(title: string, run: Mocha.Func | Mocha.AsyncFunc): void {
  if (extent !== 'test') it(title, run);
}
