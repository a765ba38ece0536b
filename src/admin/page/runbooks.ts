import { packageFile } from '../../package/files.ts';
import { type HttpAnswer, problem } from '../respond.ts';

/** Those that problems link to (problems.ts). They are part of the package: they must be there when nothing else is. */
export const runbooks = [
  'ambiguous-variants',
  'certificates',
  'change-held',
  'clients-reject',
  'clients-silent',
  'control-plane-away',
  'frozen',
  'limits',
  'missing-resources',
  'not-ready',
  'removals-held',
  'upstream-streams-end',
] as const;

export function runbook(name: string): HttpAnswer {
  try {
    const body = packageFile(`docs/runbooks/${name}.md`).toString();
    return { status: 200, type: 'text/plain; charset=utf-8', body };
  } catch {
    return problem(404, 'not_found', `docs/runbooks/${name}.md is not installed with this relay`);
  }
}
