import { createHash } from 'node:crypto';
import type { ResourceName, TypeUrl } from '../../model/brand.ts';
import type { Put } from '../../model/transaction.ts';
import { typeInfo } from '../../model/types.ts';
import { getOrMake } from './maps.ts';
import type { FileProblem } from './problem.ts';
import type { FileContent } from './record.ts';
import { describe, type FileResource } from './resources.ts';
import type { Scan } from './scan.ts';

/** All resources of one type, of all files. */
export interface TypeContent {
  readonly version: string;
  /** Equal: nothing of this type changed. */
  readonly digest: string;
  readonly byName: ReadonlyMap<ResourceName, readonly Put[]>;
}

export interface Merged {
  /** In the order in which they are sent on ADS (protocol §8), so that what is referred to comes first. */
  readonly types: ReadonlyMap<TypeUrl, TypeContent>;
  readonly problems: readonly FileProblem[];
}

/** `mergeFiles` of a scan, with the scan's own problems first. */
export function mergeScan(scan: Scan, claimed: Claimed): Merged {
  const contents = new Map<string, FileContent>();
  const broken: FileProblem[] = [];
  for (const [file, { content, problems, notes }] of scan.files) {
    if (content !== undefined) contents.set(file, content);
    broken.push(...problems, ...notes);
  }
  const merged = mergeFiles(contents, claimed);
  return { types: merged.types, problems: [...scan.problems, ...broken, ...merged.problems] };
}

type Claimed = (type: TypeUrl, name: ResourceName) => boolean;

/**
 * Joins the files, which come in path order. Of two resources with the same type, name and constraints the later file's
 * is refused, and reported; its other resources count. Variants of one name, with different constraints, may be in
 * different files. What `claimed` denies is left out: other upstreams serve it.
 */
function mergeFiles(files: ReadonlyMap<string, FileContent>, claimed: Claimed): Merged {
  const types = new Map<TypeUrl, TypeBuilder>();
  const problems: FileProblem[] = [];
  for (const [file, content] of files) {
    for (const resource of content.resources) {
      if (!claimed(resource.type, resource.put.name)) continue;
      const builder = getOrMake(types, resource.type, () => new TypeBuilder());
      const earlier = builder.add(resource, file, content.versionInfo);
      if (earlier === undefined) continue;
      problems.push({
        file,
        place: content.places[resource.index],
        message: `${describe(resource.type, resource.put)} is refused: ${earlier} has it already`,
        types: [resource.type],
      });
    }
  }
  const ordered = [...types].toSorted(([a], [b]) => typeInfo(a).order - typeInfo(b).order);
  return { types: new Map(ordered.map(([type, builder]) => [type, builder.build()])), problems };
}

interface Origin {
  readonly put: Put;
  readonly file: string;
}

class TypeBuilder {
  readonly #names = new Map<ResourceName, Map<string, Origin>>();
  readonly #digests: string[] = [];
  readonly #versions = new Set<string>();

  /** The file that has it already; undefined if it was added. */
  add(resource: FileResource, file: string, versionInfo: string): string | undefined {
    const { put, digest } = resource;
    const variants = getOrMake(this.#names, put.name, () => new Map<string, Origin>());
    const earlier = variants.get(put.constraints.key);
    if (earlier !== undefined) return earlier.file;
    variants.set(put.constraints.key, { put, file });
    this.#digests.push(digest);
    this.#versions.add(versionInfo);
    return undefined;
  }

  build(): TypeContent {
    const digest = createHash('sha256').update(this.#digests.toSorted().join()).digest('hex').slice(0, 16);
    const [only = ''] = this.#versions;
    return {
      // The files' own version if they agree on one; else the content's (protocol §7).
      version: this.#versions.size === 1 && only !== '' ? only : digest,
      digest,
      byName: new Map(
        [...this.#names].map(([name, variants]) => [name, [...variants.values()].map(({ put }) => put)]),
      ),
    };
  }
}

/** Of a type that no file has. */
export const emptyContent: TypeContent = new TypeBuilder().build();
