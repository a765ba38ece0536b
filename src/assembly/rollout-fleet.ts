import type { TypeStream } from '../downstream/type-stream.ts';
import type { XdsStream } from '../downstream/xds-stream.ts';
import { type ResourceName, resourceName, type TypeUrl } from '../model/brand.ts';
import type { Constraints } from '../model/constraints.ts';
import type { HeldVariant } from '../model/rollout.ts';
import type { Selection } from '../model/selection.ts';
import type { Subscription } from '../model/subscription.ts';
import { shorten } from '../model/text.ts';
import { typeInfo } from '../model/types.ts';
import type { Relay } from '../relay.ts';
import type { Member } from '../rollout/election.ts';
import type { CanaryStream, Fleet, Standing, Survey, Waiting } from '../rollout/fleet.ts';
import { nameKey } from '../rollout/pending-names.ts';

/** What waits under one name. */
interface Difference {
  /** The name, and its aliases. */
  readonly selectors: readonly ResourceName[];
  /** Of the variants that come, go or change. */
  readonly constraints: readonly Constraints[];
}

const accepted: Standing = { kind: 'accepted' };
const waits: Standing = { kind: 'waiting' };

/** The streams of a relay, as a rollout sees them. */
export class RelayFleet implements Fleet {
  readonly #relay: Relay;
  /** What waits under each name, and what each selection shows of it: until something else waits. */
  readonly #differences = new Map<TypeUrl, Map<ResourceName, Difference>>();
  /** By type, hash and size of the selection: equal selections share one set. */
  readonly #subscribed = new Map<
    string,
    { readonly selection: Selection; readonly names: ReadonlySet<string> }[]
  >();

  constructor(relay: Relay) {
    this.#relay = relay;
  }

  survey(waiting: Waiting): Survey {
    const members = new Map<string, Member & { readonly subscribed: Set<ReadonlySet<string>> }>();
    const canaries: CanaryStream[] = [];
    for (const stream of this.#relay.server.streams()) {
      const { client } = stream;
      if (client === undefined) continue;
      const types = this.#typesOf(stream, waiting);
      if (types.length === 0) continue;
      const { nodeId, place, classKey, access } = client;
      const key = JSON.stringify([nodeId, classKey, access.side]);
      const known = members.get(key) ?? { nodeId, place, classKey, side: access.side, subscribed: new Set() };
      members.set(key, known);
      for (const { names } of types) known.subscribed.add(names);
      if (access.side !== 'canary') continue;
      const standing = together(types.map((type) => type.standing()));
      canaries.push({ stream: stream.id, standing, names: types.map(({ names }) => names) });
    }
    return { complete: true, members: [...members.values()], canaries };
  }

  /** Undefined: it does not subscribe to what waits. */
  standingOf(stream: XdsStream, waiting: Waiting): Standing | undefined {
    const types = this.#typesOf(stream, waiting);
    return types.length === 0 ? undefined : together(types.map(({ standing }) => standing()));
  }

  waitingChanged(): void {
    this.#differences.clear();
    this.#subscribed.clear();
  }

  moved(nodeIds: ReadonlySet<string> | undefined): void {
    const { server, polls } = this.#relay;
    server.reidentify(nodeIds);
    polls.rereadRequests();
  }

  /** The types in which a stream subscribes to something that waits. */
  #typesOf(
    { types }: XdsStream,
    waiting: Waiting,
  ): readonly { readonly names: ReadonlySet<string>; readonly standing: () => Standing }[] {
    return types.flatMap((type) => {
      const names = waiting.get(type.info.url);
      if (names === undefined || type.subscription === undefined) return [];
      const subscribed = this.#subscribedBy(type, names);
      if (subscribed.size === 0) return [];
      return [{ names: subscribed, standing: () => standingOf(type, subscribed, names) }];
    });
  }

  #subscribedBy({ info, selection }: TypeStream, names: ReadonlySet<ResourceName>): ReadonlySet<string> {
    const key = `${info.short} ${selection.hash} ${selection.size}`;
    const equals = this.#subscribed.get(key) ?? [];
    const known = equals.find((one) => one.selection.equals(selection));
    if (known !== undefined) return known.names;
    const found = new Set<string>();
    for (const name of names) {
      const { selectors, constraints } = this.#differenceOf(info.url, name);
      const shown = selectors.some((selector) =>
        selection
          .entriesFor(selector)
          .some(({ parameters }) => constraints.some((one) => one.matches(parameters))),
      );
      if (shown) found.add(nameKey(info.url, name));
    }
    this.#subscribed.set(key, [...equals, { selection, names: found }]);
    return found;
  }

  #differenceOf(type: TypeUrl, name: ResourceName): Difference {
    const byName = this.#differences.get(type) ?? new Map<ResourceName, Difference>();
    this.#differences.set(type, byName);
    const known = byName.get(name);
    if (known !== undefined) return known;
    const created = difference(this.#relay, type, name);
    byName.set(name, created);
    return created;
  }
}

function difference(relay: Relay, type: TypeUrl, name: ResourceName): Difference {
  const before = relay.variantsOf(type, name, 'released');
  const after = relay.variantsOf(type, name, 'canary');
  const changed = [
    ...before.filter((one) => !after.some((other) => isSame(one, other))),
    ...after.filter((one) => !before.some((other) => isSame(one, other))),
  ].map(({ variant }) => variant);
  return {
    selectors: [...new Set([name, ...changed.flatMap(({ aliases }) => aliases.map(resourceName))])],
    constraints: changed.map(({ constraints }) => constraints),
  };
}

const isSame = (a: HeldVariant, b: HeldVariant): boolean =>
  a.variant === b.variant ||
  (a.variant.constraints.key === b.variant.constraints.key && a.variant.payload === b.variant.payload);

/** What a canary says to what waits in one type. `names`: what it subscribes to of it; `waiting`: all of it. */
function standingOf(
  { info, subscription }: TypeStream,
  names: ReadonlySet<string>,
  waiting: ReadonlySet<ResourceName>,
): Standing {
  if (subscription === undefined) return accepted;
  const { responses, pending } = subscription;
  if (responses.state !== 'ERROR') return !pending && hasTaken(subscription, waiting) ? accepted : waits;
  const { short, url } = typeInfo(info.url);
  const { rejectedWhole } = responses;
  // It may be something else that it rejects.
  const rejected = Iterator.from(subscription.holdings()).filter(
    ({ canonical, state }) => state === 'ERROR' && waiting.has(canonical),
  );
  const first = rejected.next().value;
  if (first !== undefined) {
    const { name, canonical, rejection } = first;
    const others = rejected.filter((one) => one.rejection === rejection).map((one) => one.canonical);
    // There may be 10,000 in a response of the state of the world: they are known without a look at each.
    const isWhole = rejection === rejectedWhole;
    const together = isWhole ? names : new Set([canonical, ...others].map((one) => nameKey(url, one)));
    const reason = `${short} ${name}: ${said(rejection?.message)}`;
    return { kind: 'rejected', reason, names: together, isFinal: !pending };
  }
  if (pending || responses.awaitsAnswer) return waits;
  // The last response only removed what waits.
  if (rejectedWhole === undefined) return accepted;
  return { kind: 'rejected', reason: `${short}: ${said(rejectedWhole.message)}`, names, isFinal: true };
}

/** A client's words, as far as they are kept with a verdict. */
const longestReason = 1024;
const said = (message = ''): string => shorten(message.trim(), longestReason);

/** There is nothing to send. After an earlier stream a client may have all of it: then nothing was sent on this one. */
function hasTaken(subscription: Subscription, waiting: ReadonlySet<ResourceName>): boolean {
  const { state } = subscription.responses;
  if (state !== 'NOT_SENT') return state === 'SYNCED';
  const held = Iterator.from(subscription.holdings()).filter(({ canonical }) => waiting.has(canonical));
  return held.every((one) => one.state === 'SYNCED' && one.current);
}

/** Of one stream, over its types. */
function together(standings: readonly Standing[]): Standing {
  return (
    standings.find(({ kind }) => kind === 'rejected') ??
    standings.find(({ kind }) => kind === 'waiting') ??
    accepted
  );
}
