import { createHash } from 'node:crypto';
import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import { isKnownType } from '../../model/types.ts';
import { type ParsedFile, parseFile } from './parse.ts';
import type { FileProblem, Place } from './problem.ts';
import { describe, type FileResource, readResources } from './resources.ts';

/** What a file contributed when it could last be read. */
export interface FileContent {
  readonly versionInfo: string;
  readonly resources: readonly FileResource[];
  /** Of the resources, by index; empty where they are not known. */
  readonly places: readonly (Place | undefined)[];
}

/** What is known of one file. */
export interface FileRecord {
  /** Of the file's status when it was read; `''` if it must be read again whatever its status says. */
  readonly signature: string;
  /** Of its bytes. */
  readonly digest: string;
  /** As it was last read without fault; undefined if it never was. */
  readonly content: FileContent | undefined;
  /** Why it cannot be read as a whole; empty: it is good. */
  readonly problems: readonly FileProblem[];
  /** What will not do what is meant, though the file is good. */
  readonly notes: readonly FileProblem[];
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
  const read = { signature, digest, bytes };
  const parsed = parseFile(file, bytes);
  if (!parsed.ok) {
    const { problems, rest } = parsed.error;
    const others = rest === undefined ? [] : wrongWith(file, rest, maxConstraintDepth);
    return badRecord(file, [...problems, ...others].toSorted(byPlace), previous, read);
  }
  const { problems, resources } = problemsOf(parsed.value, maxConstraintDepth);
  const notes = notesOn(file, resources, parsed.value);
  if (problems.length > 0) return badRecord(file, [...problems, ...notes].toSorted(byPlace), previous, read);
  const { response, places } = parsed.value;
  const content = { versionInfo: response.versionInfo, resources, places };
  return { signature, digest, content, problems: [], notes, withheld: nothing };
}

function wrongWith(file: string, parsed: ParsedFile, maxConstraintDepth: number): readonly Located[] {
  const { problems, resources } = problemsOf(parsed, maxConstraintDepth);
  return [...problems, ...notesOn(file, resources, parsed)];
}

const byPlace = (a: Located, b: Located): number => (a.place?.line ?? 0) - (b.place?.line ?? 0);

type Located = Pick<FileProblem, 'place' | 'message'>;

function problemsOf({ response, placeOf, indexOf }: ParsedFile, maxConstraintDepth: number) {
  const { resources, problems } = readResources(response, maxConstraintDepth);
  const located = problems.map(({ index, message }): Located => {
    return { place: placeOf(index), message: `resources[${indexOf(index)}]: ${message}` };
  });
  return { resources, problems: located };
}

/** Files send no heartbeats, so that a resource with a TTL ends, at clients too, and does not come again. */
function notesOn(
  file: string,
  resources: readonly FileResource[],
  { placeOf }: ParsedFile,
): readonly FileProblem[] {
  return resources
    .filter(({ put }) => put.ttlMilliseconds !== undefined)
    .map(({ type, put, index }) => ({
      file,
      place: placeOf(index),
      message: `${describe(type, put)} has a ttl: it ends ${(put.ttlMilliseconds ?? 0) / 1000} s after the file is read, because nothing renews it; leave ttl out`,
      types: [],
    }));
}

/** A file that is there, but cannot be read. */
export function unreadableRecord(
  file: string,
  message: string,
  previous: FileRecord | undefined,
): FileRecord {
  return badRecord(file, [{ place: undefined, message }], previous, {
    signature: '',
    digest: '',
    bytes: new Uint8Array(0),
  });
}

/** More would not be read, and each is a line of the log. */
const mostProblems = 50;

function badRecord(
  file: string,
  found: readonly Located[],
  previous: FileRecord | undefined,
  read: { readonly signature: string; readonly digest: string; readonly bytes: Uint8Array },
): FileRecord {
  const content = previous?.content;
  const named = typesNamedIn(read.bytes);
  const before = content?.resources.map(({ type }) => type) ?? [];
  const types = refusedTypes(named, before);
  const left = found.length - mostProblems;
  const more = left > 0 ? [{ place: undefined, message: `${left} more problems are in this file` }] : [];
  // One update is refused, whatever is wrong with it: only the first says of which types.
  const problems = [...found.slice(0, mostProblems), ...more].map(({ place, message }, at) => ({
    file,
    place,
    message,
    types: at === 0 ? types : [],
  }));
  return {
    signature: read.signature,
    digest: read.digest,
    content,
    problems,
    notes: content === undefined ? [] : (previous?.notes ?? []),
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
