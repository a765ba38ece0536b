import type { TypeUrl } from '../../model/brand.ts';

/** Something wrong with one file, for the log, for `status` and for `validate`. */
export interface FileProblem {
  /** As found below the configured path. */
  readonly file: string;
  /** From 1; undefined where the format has no lines or the place is not known. */
  readonly line: number | undefined;
  readonly message: string;
  /** The types of which something is refused. */
  readonly types: readonly TypeUrl[];
}

/** `path:line: message`, as editors and compilers write it. */
export function formatProblem({ file, line, message }: FileProblem): string {
  return `${file}${line === undefined ? '' : `:${line}`}: ${message}`;
}
