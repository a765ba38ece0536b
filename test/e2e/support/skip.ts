import type { Result } from '../../../src/model/result.ts';
import { missing } from '../../run/report.ts';

/**
 * What a suite of real components needs. Where it is missing the suite is skipped, and the end of the run says why;
 * with CI=true it fails instead.
 */
export async function need<T>(context: Mocha.Context, what: Promise<Result<T>>): Promise<T> {
  const found = await what;
  if (found.ok) return found.value;
  if (process.env['CI'] === 'true') throw new Error(found.error);
  missing.add(found.error);
  return context.skip();
}
