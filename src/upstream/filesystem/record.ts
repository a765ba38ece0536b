import { createHash } from 'node:crypto';
import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import { isKnownType } from '../../model/types.ts';
import { parseFile } from './parse.ts';
import type { FileProblem } from './problem.ts';
import { type FileResource, readResources } from './resources.ts';

/** What a file contributed when it could last be read. */
export interface FileContent {
  readonly versionInfo: string;
  readonly resources: readonly FileResource[];
  /** Of the resources, by index; empty where they are not known. */
  readonly lines: readonly (number | undefined)[];
}

/** What is known of one file. */
export interface FileRecord {
  /** Of the file's status when it was read; `''` if it must be read again whatever its status says. */
  readonly signature: string;
  /** Of its bytes. */
  readonly digest: string;
  /** As it was last read without fault; undefined if it never was. */
  readonly content: FileContent | undefined;
  readonly problem: FileProblem | undefined;
  /**
   * The types that a file which never was good seems to hold. Their other files do not make the whole of the type:
   * what is missing from them is unknown, not absent (protocol §3.9).
   */
  readonly withheld: ReadonlySet<TypeUrl>;
}

const nothing: ReadonlySet<TypeUrl> = new Set();

/** Reads a file's bytes. What cannot be read keeps the last good content. */
export function readRecord(
  file: string,
  bytes: Uint8Array,
  signature: string,
  previous: FileRecord | undefined,
  maxConstraintDepth: number,
): FileRecord {
  const digest = createHash('sha256').update(bytes).digest('hex');
  if (previous?.digest === digest) return { ...previous, signature };
  const parsed = parseFile(file, bytes);
  if (!parsed.ok) return badRecord({ file, ...parsed.error }, previous, { signature, digest, bytes });
  const { response, lineOf, lines } = parsed.value;
  const resources = readResources(response, maxConstraintDepth);
  if (!resources.ok) {
    const { index, message } = resources.error;
    const problem = { file, line: lineOf(index), message: `resources[${index}]: ${message}` };
    return badRecord(problem, previous, { signature, digest, bytes });
  }
  const content = { versionInfo: response.versionInfo, resources: resources.value, lines };
  return { signature, digest, content, problem: undefined, withheld: nothing };
}

/** A file that is there, but cannot be read. */
export function unreadableRecord(
  file: string,
  message: string,
  previous: FileRecord | undefined,
): FileRecord {
  return badRecord({ file, line: undefined, message }, previous, {
    signature: '',
    digest: '',
    bytes: new Uint8Array(0),
  });
}

function badRecord(
  problem: Omit<FileProblem, 'types'>,
  previous: FileRecord | undefined,
  read: { readonly signature: string; readonly digest: string; readonly bytes: Uint8Array },
): FileRecord {
  const content = previous?.content;
  const named = typesNamedIn(read.bytes);
  const before = content?.resources.map(({ type }) => type) ?? [];
  return {
    signature: read.signature,
    digest: read.digest,
    content,
    problem: { ...problem, types: refusedTypes(named, before) },
    withheld: content === undefined ? named : nothing,
  };
}

/**
 * What a file that cannot be read would have changed: the types of the xDS protocol that it names, as others are mostly
 * those of extensions; else what it had before. If neither is known: a type without a name.
 */
function refusedTypes(named: ReadonlySet<TypeUrl>, before: readonly TypeUrl[]): readonly TypeUrl[] {
  const known = [...named].filter(isKnownType);
  if (known.length > 0) return known;
  const others = [...new Set(named.size > 0 ? named : before)];
  return others.length > 0 ? others : [typeUrl('')];
}

/** Type URLs are plain text in every format, the binary one too. */
function typesNamedIn(bytes: Uint8Array): ReadonlySet<TypeUrl> {
  const text = new TextDecoder('latin1').decode(bytes);
  return new Set(text.matchAll(/type\.googleapis\.com\/[\w.]+/g).map(([url]) => typeUrl(url)));
}
