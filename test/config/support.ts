import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Config } from '../../src/config/config.ts';
import type { Environment } from '../../src/config/document.ts';
import { parseConfig } from '../../src/config/load.ts';
import { problemLine } from '../../src/config/source.ts';

/** The least that is accepted. */
export const minimal = `upstreams:
  - name: files
    filesystem: { path: . }
`;

/** Of a text that must be accepted. */
export function configOf(text: string, environment: Environment = {}): Config {
  const parsed = parseConfig(text, 'f', environment);
  if (parsed.ok) return parsed.value;
  throw new Error(parsed.error.map((problem) => problemLine('f', problem)).join('\n'));
}

/** Each problem as `LINE:COLUMN: path: message`; none if the text is accepted. */
export function problemsOf(text: string, environment: Environment = {}): readonly string[] {
  const parsed = parseConfig(text, 'f', environment);
  return parsed.ok ? [] : parsed.error.map((problem) => problemLine('f', problem).slice('f:'.length));
}

/** That these and no others are reported, in this order; each given text is how the problem begins. */
export function expectProblems(actual: readonly string[], expected: readonly string[]): void {
  expect(
    actual.map((problem, index) => problem.slice(0, expected[index]?.length ?? problem.length)),
  ).to.deep.equal(expected);
}

/** A directory that is removed after each test. */
export function temporaryDirectory(): () => string {
  let directory = '';
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'distributary-config-'));
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));
  return () => directory;
}
