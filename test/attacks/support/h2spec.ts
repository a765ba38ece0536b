import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Result } from '../../../src/model/result.ts';
import { goBinary } from '../../e2e/support/go.ts';
import { temporaryDirectory } from '../../e2e/support/paths.ts';
import { outcome } from '../../e2e/support/process.ts';
import type { Target } from './target.ts';

const sources = join(import.meta.dirname, '../go');
/** GET of it has an answer with DATA, of which some cases make use. */
const path = '/grpc.health.v1.Health/Check';

/** Path of h2spec, built once; the error says why there is none. */
export const h2specBinary = (): Promise<Result<string>> =>
  goBinary('h2spec', sources, 'github.com/summerwind/h2spec/cmd/h2spec');

/** `SECTION: what is sent`, and what came of it: `passed`, `skipped`, or what was expected and what came. */
export type Cases = ReadonlyMap<string, string>;

/** Runs h2spec: all of it, or these sections. `timeout`: seconds that a case waits for an answer. */
export async function runH2spec(
  binary: string,
  { host, port }: Target,
  timeout: number,
  sections: readonly string[] = [],
): Promise<Cases> {
  using directory = temporaryDirectory();
  const report = join(directory.path, 'report.xml');
  const where = ['--host', host, '--port', String(port), '--path', path];
  // It ends with 1 where a case fails: which, is in the report.
  const { output } = await outcome({
    command: binary,
    args: [...sections, ...where, '--timeout', String(timeout), '--junit-report', report],
  });
  if (!existsSync(report)) throw new Error(`h2spec made no report:\n${output}`);
  return casesOf(readFileSync(report, 'utf8'));
}

/** Its report is JUnit's, but no clean XML: bytes of frames are in it. */
function casesOf(report: string): Cases {
  const cases = new Map<string, string>();
  for (const [, section = '', what = '', content = ''] of report.matchAll(
    /<testcase package="([^"]*)" classname="([^"]*)"[^>]*>(.*?)<\/testcase>/gs,
  )) {
    const name = `${section}: ${what.replaceAll('&#34;', '"')}`;
    const text = content
      .replaceAll(/<[^>]*>/g, ' ')
      .replaceAll(/\s+/g, ' ')
      .trim();
    if (content.includes('<skipped>')) cases.set(name, 'skipped');
    else cases.set(name, content.trim() === '' ? 'passed' : text);
  }
  return cases;
}
