import { create } from '@bufbuild/protobuf';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import { any, type as urlOf } from '../support/in-memory-relay.ts';
import { ambiguities, type Constraints, matches, NONE, type Parameters, partitions } from './constraints.ts';
import type { Random } from './random.ts';

const CUSTOM = 'type.googleapis.com/example.Custom';

/** Types of the simulated world, by a short name. */
export const kinds = ['cds', 'eds', 'lds', 'rds', 'sds', 'custom'] as const;
export type Kind = (typeof kinds)[number];

interface KindInfo {
  readonly url: string;
  /** SotW: absence deletes (protocol §3.7). */
  readonly full: boolean;
  /** An empty first request means everything (protocol §3.6). */
  readonly legacy: boolean;
  readonly names: readonly string[];
  /** Of these, what only those get who name it: control planes have resources that `*` does not show. */
  readonly hidden: readonly string[];
}

const info = (
  url: string,
  full: boolean,
  legacy: boolean,
  names: string[],
  hidden: string[] = [],
): KindInfo => ({
  url,
  full,
  legacy,
  names,
  hidden,
});

export const catalog: Readonly<Record<Kind, KindInfo>> = {
  cds: info(urlOf('cds'), true, true, ['a', 'b', 'c', 'h', 'x0', 'x1', 'x2'], ['h']),
  eds: info(urlOf('eds'), false, false, ['a', 'b', 'c', 'd']),
  lds: info(urlOf('lds'), true, true, ['l', 'm', 'n'], ['n']),
  rds: info(urlOf('rds'), false, false, ['r', 's', 'to']),
  sds: info(urlOf('sds'), false, false, ['t', 'u']),
  custom: info(CUSTOM, false, true, ['k', 'o', 'p'], ['p']),
};

const byUrl = new Map(kinds.map((kind) => [catalog[kind].url, kind]));

export function kindOf(url: string): Kind {
  const kind = byUrl.get(url);
  if (kind === undefined) throw new Error(`a message of type ${url}`);
  return kind;
}

/** The clusters that the route `to` moves between: make before break (protocol §8). */
const movable: readonly string[] = ['x0', 'x1', 'x2'];
export const movingRoute = 'to';

/** The cluster that a route's content leads to. */
export const leadsTo = (content: string): string | undefined => content.split('>')[1];

/** Content that every client rejects. */
export const isBad = (content: string): boolean => content.endsWith('!');

/** Content that every client accepts, and with which every other of its requests fails. */
export const isHarmful = (content: string): boolean => content.endsWith('~');

export interface Variant {
  readonly constraints: Constraints;
  readonly content: string;
}

export interface Edit {
  readonly kind: Kind;
  readonly name: string;
  /** All variants from now on; none: the name is deleted. */
  readonly variants: readonly Variant[];
}

interface Entry {
  readonly revision: number;
  readonly variants: readonly Variant[];
}

const nothing: readonly Variant[] = [];

/** What the control planes of a run hold, with all of its history. */
export class World {
  #revision = 0;
  readonly #history = new Map<string, Entry[]>();
  /** Errors that control planes have told of, by kind, name and code. */
  readonly faults = new Set<string>();
  readonly #listeners: ((revision: number, edits: readonly Edit[]) => void)[] = [];

  get revision(): number {
    return this.#revision;
  }

  listen(listener: (revision: number, edits: readonly Edit[]) => void): void {
    this.#listeners.push(listener);
  }

  commit(edits: readonly Edit[]): void {
    const revision = ++this.#revision;
    for (const { kind, name, variants } of edits) {
      const id = `${kind} ${name}`;
      const entries = this.#history.get(id) ?? [{ revision: 0, variants: nothing }];
      entries.push({ revision, variants });
      this.#history.set(id, entries);
    }
    for (const listener of this.#listeners) listener(revision, edits);
  }

  at(kind: Kind, name: string, revision: number): readonly Variant[] {
    const entries = this.#history.get(`${kind} ${name}`);
    return entries?.findLast((entry) => entry.revision <= revision)?.variants ?? nothing;
  }

  /** The variants that these parameters match; more than one is ambiguous. */
  matching(kind: Kind, name: string, given: Parameters, revision: number): Variant[] {
    return this.at(kind, name, revision).filter(({ constraints }) => matches(constraints.message, given));
  }

  /**
   * The first revision from `floor` on in which somebody with these parameters saw this content (undefined: nothing)
   * under the name; undefined if there is none.
   */
  seen(
    kind: Kind,
    name: string,
    given: Parameters,
    content: string | undefined,
    floor: number,
  ): number | undefined {
    const entries = this.#history.get(`${kind} ${name}`) ?? [{ revision: 0, variants: nothing }];
    for (const [index, { revision, variants }] of entries.entries()) {
      const next = entries[index + 1]?.revision ?? Number.POSITIVE_INFINITY;
      if (next <= floor) continue;
      const matching = variants.filter(({ constraints }) => matches(constraints.message, given));
      const found =
        content === undefined
          ? matching.length === 0
          : matching.some((variant) => variant.content === content);
      if (found) return Math.max(floor, revision);
    }
    return undefined;
  }

  /** The revision of the last edit of any of these names. */
  lastEdit(kind: Kind, names: readonly string[]): number {
    return Math.max(0, ...names.map((one) => this.#history.get(`${kind} ${one}`)?.at(-1)?.revision ?? 0));
  }

  /** The first revision after this one that puts a content of any of these names behind other constraints. */
  nextMove(kind: Kind, names: readonly string[], after: number): number | undefined {
    const moves = names.flatMap((one) => {
      const entries = this.#history.get(`${kind} ${one}`) ?? [];
      return entries
        .filter(
          ({ revision, variants }, at) => revision > after && moved(entries[at - 1]?.variants, variants),
        )
        .map(({ revision }) => revision);
    });
    return moves.length === 0 ? undefined : Math.min(...moves);
  }

  /** Earlier variants of a name, for going back to them. */
  earlier(kind: Kind, name: string): readonly (readonly Variant[])[] {
    return (this.#history.get(`${kind} ${name}`) ?? []).map(({ variants }) => variants);
  }
}

const moved = (before: readonly Variant[] = nothing, after: readonly Variant[]): boolean =>
  after.some(({ constraints, content }) =>
    before.some((one) => one.content === content && one.constraints.label !== constraints.label),
  );

/** The first state: most names exist. */
export function populate(world: World, random: Random): void {
  const edits: Edit[] = [];
  for (const kind of kinds) {
    for (const name of catalog[kind].names) {
      if (isMoving(kind, name) || random.chance(0.25)) continue;
      edits.push({ kind, name, variants: fresh(world, random, name) });
    }
  }
  edits.push({
    kind: 'cds',
    name: 'x0',
    variants: [{ constraints: NONE, content: `${world.revision + 1}` }],
  });
  edits.push({
    kind: 'rds',
    name: movingRoute,
    variants: [{ constraints: NONE, content: `${world.revision + 1}>x0` }],
  });
  world.commit(edits);
}

/** A name that everybody has gets content that clients accept, and that breaks them. */
export function harm(world: World, random: Random): void {
  const kind = random.pick(['cds', 'lds', 'rds'] as const);
  const name = random.pick(catalog[kind].names.filter((one) => !isMoving(kind, one)));
  const variants = world
    .at(kind, name, world.revision)
    .map(({ constraints }) => ({ constraints, content: `${world.revision + 1}${name}~` }));
  if (variants.length > 0) world.commit([{ kind, name, variants }]);
}

/** A transaction on one to three names of a type. */
export function change(world: World, random: Random): void {
  const kind = random.pick(kinds);
  const names = catalog[kind].names.filter((name) => !isMoving(kind, name));
  const edits: Edit[] = [];
  for (const name of new Set(Array.from({ length: random.between(1, 3) }, () => random.pick(names)))) {
    edits.push({ kind, name, variants: changed(world, random, kind, name) });
  }
  world.commit(edits);
}

/** In which order a swap is told. The last two: a control plane that swaps all at once, and tells each type apart. */
export type SwapOrder = 'make before break' | 'clusters first' | 'routes first';

/** CDS{X,Y}, RDS→Y, CDS{Y}, or CDS{Y} and RDS→Y: what each step does, to be done in order. */
export function swapClusters(world: World, random: Random, order: SwapOrder): readonly (() => void)[] {
  const held = (): string[] => movable.filter((name) => world.at('cds', name, world.revision).length > 0);
  const [from] = held();
  const to = random.pick(movable.filter((name) => name !== from));
  const edit = (kind: Kind, name: string, content: string | undefined): Edit => ({
    kind,
    name,
    variants: content === undefined ? [] : [{ constraints: NONE, content }],
  });
  const added = (): Edit => edit('cds', to, `${world.revision + 1}`);
  const removed = (): Edit[] => held().flatMap((name) => (name === to ? [] : [edit('cds', name, undefined)]));
  const moved = (): void => world.commit([edit('rds', movingRoute, `${world.revision + 1}>${to}`)]);
  const replaced = (): void => world.commit([added(), ...removed()]);
  if (order === 'clusters first') return [replaced, moved];
  if (order === 'routes first') return [moved, replaced];
  return [
    () => world.commit([added()]),
    moved,
    () => {
      for (const one of removed()) world.commit([one]);
    },
  ];
}

function isMoving(kind: Kind, name: string): boolean {
  return (kind === 'cds' && movable.includes(name)) || (kind === 'rds' && name === movingRoute);
}

function fresh(world: World, random: Random, name: string): Variant[] {
  const chosen = random.chance(0.12) ? random.pick(ambiguities) : random.pick(partitions);
  return chosen.map((constraints, index) => ({
    constraints,
    content: `${world.revision + 1}.${index}${name}${random.chance(0.04) ? '!' : ''}`,
  }));
}

function changed(world: World, random: Random, kind: Kind, name: string): readonly Variant[] {
  const current = world.at(kind, name, world.revision);
  if (current.length === 0) return fresh(world, random, name);
  const choice = random.next();
  const content = `${world.revision + 1}${name}`;
  if (choice < 0.35) {
    const at = random.below(current.length);
    return current.map((variant, index) => (index === at ? { ...variant, content } : variant));
  }
  if (choice < 0.55) return fresh(world, random, name);
  if (choice < 0.65) {
    // The same content behind other constraints, where they can be exchanged.
    const other = partitions.find((set) => set.length === current.length && random.chance(0.5));
    if (other === undefined) return fresh(world, random, name);
    return current.map((variant, index) => ({ ...variant, constraints: other[index] ?? NONE }));
  }
  if (choice < 0.75) return random.pick(world.earlier(kind, name));
  if (choice < 0.85 && current.length > 1) return current.slice(1);
  return nothing;
}

/** Of a RouteConfiguration: virtual_hosts, their routes, the action of one, its cluster. */
function routeTo(cluster: string): Uint8Array {
  let bytes = Buffer.from(cluster);
  for (const field of [1, 2, 3, 2]) bytes = Buffer.from([(field << 3) | 2, bytes.length, ...bytes]);
  return bytes;
}

const encoded = new Map<string, Any>();

/** The resource as a message: its name in field 1, as every type of protocol §2 has it. */
export function bodyOf(kind: Kind, name: string, content: string): Any {
  const id = `${kind} ${name} ${content}`;
  const known = encoded.get(id);
  if (known !== undefined) return known;
  const { value: plain } = any(urlOf('cds'), name, content);
  const target = kind === 'rds' ? leadsTo(content) : undefined;
  const value = target === undefined ? plain : Buffer.concat([plain, routeTo(target)]);
  const body = create(AnySchema, { typeUrl: catalog[kind].url, value });
  if (encoded.size > 20_000) encoded.clear();
  encoded.set(id, body);
  return body;
}
