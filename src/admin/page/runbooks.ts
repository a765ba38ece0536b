import { problemKinds } from '../../observe/problems.ts';
import { packageFile } from '../../package/files.ts';
import { type HttpAnswer, problem } from '../respond.ts';

/** What a relay cannot say of itself: it is gone, or was. */
const ofOtherSources = ['relay-down', 'standstill'];

/** They are part of the package: they must be there when nothing else is. */
export const runbooks: ReadonlySet<string> = new Set([
  ...Object.values(problemKinds).map(({ runbook }) => runbook),
  ...ofOtherSources,
]);

export function runbook(name: string): HttpAnswer {
  try {
    const body = packageFile(`docs/runbooks/${name}.md`).toString();
    return { status: 200, type: 'text/plain; charset=utf-8', body };
  } catch {
    return problem(404, 'not_found', `docs/runbooks/${name}.md is not installed with this relay`);
  }
}
