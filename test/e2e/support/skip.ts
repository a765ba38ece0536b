import type { Result } from '../../../src/model/result.ts';

/**
 * What a suite of real components needs. Where it is missing the suite is skipped with a line that says why; with
 * CI=true it fails instead.
 */
export async function need<T>(context: Mocha.Context, what: Promise<Result<T>>): Promise<T> {
  const found = await what;
  if (found.ok) return found.value;
  if (process.env['CI'] === 'true') throw new Error(found.error);
  process.stdout.write(`  skipped: ${found.error}\n`);
  return context.skip();
}
