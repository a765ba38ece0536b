import type { TypeUrl } from '../../model/brand.ts';

/** From 1, as editors count. */
export interface Place {
  readonly line: number;
  /** Undefined: only the line is known. */
  readonly column?: number | undefined;
}

/** Something wrong with one file, for the log, for `status` and for `validate`. */
export interface FileProblem {
  /** As found below the configured path. */
  readonly file: string;
  /** Undefined where the format has no lines or the place is not known. */
  readonly place: Place | undefined;
  readonly message: string;
  /** The types of which something is refused. */
  readonly types: readonly TypeUrl[];
}

/** `path:line:column: message`, as editors and compilers write it. */
export function formatProblem({ file, place, message }: FileProblem): string {
  const at = [file, ...[place?.line, place?.column].filter((part) => part !== undefined)];
  return `${at.join(':')}: ${message}`;
}
