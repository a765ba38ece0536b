import { hash } from 'node:crypto';
import type { Config } from './config/config.ts';
import type { ClientContext } from './downstream/services.ts';
import type { Access } from './model/access.ts';
import { itsOwn, type LoadOrigin } from './model/load.ts';
import { getOrMake } from './model/maps.ts';
import { nodePath, type WantedMetadata, wantedMetadata } from './model/node-path.ts';
import type { Parameters } from './model/parameters.ts';
import { fail, ok, type Result } from './model/result.ts';
import type { CohortClient, CohortOf } from './model/rollout.ts';
import { compileAuthorization } from './security/authorization.ts';
import { type ClientNode, readClientNode } from './security/client-node.ts';
import { compileParameterRules, type DerivedParameters } from './security/derive-parameters.ts';
import { compilePrincipals } from './security/pattern.ts';
import { originOfFeatures, PASSES_VARIANTS, UNKNOWN_NAMES, USER_AGENT } from './wire/between-relays.ts';
import { Code, type GrpcStatus } from './wire/grpc-status.ts';
import { nodeKeyOf, type PeerNames, verifiedIdentity } from './wire/peer.ts';
import type { Peer } from './wire/server-stream.ts';

/** Client features by which a client says what it understands (protocol §5, §8). */
const wrappedFeatures = ['xds.config.resource-in-sotw', 'xds.config.supports-resource-in-sotw'];
const ttlFeature = 'xds.config.supports-resource-ttl';

/** A client, with the parts of its node that the rules used. */
class KnownClient implements ClientContext, CohortClient {
  readonly node: ClientNode;
  /** Where the rules looked for metadata when the node was read. Other metadata was not kept. */
  readonly metadataPaths: ReadonlySet<string>;
  /** By its cohort: set anew before anybody sees it. */
  access: Access;
  readonly address: string;
  readonly #identity: string | undefined;
  #nodeKey: string | undefined;
  readonly exempt: boolean;
  readonly wrapped: boolean;
  readonly ttl: boolean;
  readonly relay: boolean;
  readonly isEnvoy: boolean;
  readonly unknownNames: boolean;
  readonly passesVariants: boolean;
  readonly loadOrigin: LoadOrigin;
  readonly classKey: string;
  readonly mayBeCanary: boolean;
  readonly #derived: DerivedParameters;

  constructor(
    node: ClientNode,
    peer: PeerNames,
    derived: DerivedParameters,
    access: Access,
    rules: ClientRules,
  ) {
    this.node = node;
    this.metadataPaths = rules.metadataPaths;
    this.access = access;
    this.address = peer.address;
    this.#identity = verifiedIdentity(peer);
    this.exempt = rules.isRelay(peer);
    this.wrapped = wrappedFeatures.some((feature) => node.clientFeatures.includes(feature));
    this.ttl = node.clientFeatures.includes(ttlFeature);
    this.relay = node.userAgentName === USER_AGENT;
    this.isEnvoy = node.userAgentName === 'envoy';
    this.unknownNames = node.clientFeatures.includes(UNKNOWN_NAMES);
    this.passesVariants = node.clientFeatures.includes(PASSES_VARIANTS);
    this.loadOrigin = rules.mayBeRelay(peer) ? originOfFeatures(node.clientFeatures) : itsOwn;
    this.#derived = derived;
    this.classKey = rules.classKeyOf(derived, access.key);
    this.mayBeCanary = rules.mayBeCanary(peer);
  }

  get selectionGroup(): object {
    return this.passesVariants ? this : this.#derived;
  }

  get nodeId(): string {
    return this.node.id;
  }

  /** Only rollouts and load reports ask for it, and these again and again. */
  get nodeKey(): string {
    this.#nodeKey ??= nodeKeyOf(this.node.id, this.#identity);
    return this.#nodeKey;
  }

  get place(): number {
    return this.node.place;
  }

  get parameters(): Parameters {
    return this.#derived.for(undefined);
  }

  get cluster(): string {
    return this.node.cluster;
  }

  derived(authority: string | undefined): Parameters {
    return this.#derived.for(authority);
  }

  merged(own: Parameters, authority: string | undefined): Parameters {
    return this.#derived.merge(own, authority);
  }
}

/** What is longer is shown as its hash: a key is kept for each class, in lists of canaries and on the disk. */
const longestClassKey = 256;

type MetadataRule = Pick<Config['parameters'][number], 'key' | 'from'>;

/** Applies the rules in force to a client's node and certificate. */
export class ClientRules {
  readonly #derivation: ReturnType<typeof compileParameterRules>;
  readonly #authorization: ReturnType<typeof compileAuthorization>;
  /** It comes by a Unix socket, or limits.relay_peers names it. The limits of clients do not bind it. */
  readonly isRelay: (peer: PeerNames) => boolean;
  readonly #verifies: boolean;
  readonly mayBeCanary: (peer: PeerNames) => boolean;
  /** The parameter rules that read metadata. */
  readonly #metadataRules: readonly MetadataRule[];
  readonly metadataPaths: ReadonlySet<string>;
  /** The same, of a node's metadata. */
  readonly wantedMetadata: WantedMetadata;
  readonly #cohortOf: CohortOf;
  readonly #classKeys = new WeakMap<DerivedParameters, Map<string, string>>();

  /** `canaryPrincipals`: who may be a canary; empty: anybody. */
  constructor(
    config: Config,
    cohortOf: CohortOf = () => 'released',
    canaryPrincipals: readonly string[] = [],
  ) {
    this.#cohortOf = cohortOf;
    this.#derivation = compileParameterRules(config.parameters);
    this.#authorization = compileAuthorization(config.xds.authorization);
    // The listener's authorities are those of the start.
    this.#verifies = config.xds.tls?.ca !== undefined;
    const { relayPeers } = config.limits;
    const listed = relayPeers.length === 0 ? () => false : compilePrincipals(relayPeers);
    this.isRelay = (peer) => peer.unix || listed(peer);
    const named = compilePrincipals(canaryPrincipals);
    // By a Unix socket there are no certificates: who reaches it is let in by the system.
    this.mayBeCanary = (peer) => canaryPrincipals.length === 0 || peer.unix || named(peer);
    const ofMetadata = config.parameters.filter(({ from }) => nodePath(from)?.[0] === 'metadata');
    // Rules for several authorities may have the same key and field.
    const distinct = new Map(ofMetadata.map((rule) => [JSON.stringify([rule.key, rule.from]), rule]));
    this.#metadataRules = [...distinct.values()];
    this.metadataPaths = new Set(this.#metadataRules.map(({ from }) => from));
    this.wantedMetadata = wantedMetadata(this.metadataPaths);
  }

  /** Whether what it says of itself as a relay is believed. Where clients are not verified, anybody can say it. */
  mayBeRelay(peer: PeerNames): boolean {
    return !this.#verifies || this.isRelay(peer);
  }

  /** A class of clients has one set of derived parameters and one access, whatever cohort they are on. */
  classKeyOf(derived: DerivedParameters, accessKey: string): string {
    const byAccess = getOrMake(this.#classKeys, derived, () => new Map());
    return getOrMake(byAccess, accessKey, () => {
      const text = JSON.stringify([derived.for(undefined).key, accessKey]);
      return text.length <= longestClassKey ? text : hash('sha256', text, 'base64url');
    });
  }

  accessOf(peer: Peer): Access {
    return this.#authorization.accessOf(peer);
  }

  context(bytes: Buffer, peer: Peer): Result<ClientContext, GrpcStatus> {
    const node = readClientNode(bytes, this.wantedMetadata); // metadata can be large: nothing else is kept
    if (!node.ok) return fail({ code: Code.INVALID_ARGUMENT, message: node.error });
    return ok(this.#apply(node.value, peer));
  }

  /** Applies these rules to a known client. Undefined: they need metadata of its node that was not kept. */
  reapplyRules(client: ClientContext, peer: Peer): ClientContext | undefined {
    if (!(client instanceof KnownClient) || this.unread(client).length > 0) return undefined;
    return this.#apply(client.node, peer);
  }

  /** The rules that need metadata of its node that was not kept. */
  unread(client: ClientContext): readonly MetadataRule[] {
    if (!(client instanceof KnownClient)) return this.#metadataRules;
    return this.#metadataRules.filter(({ from }) => !client.metadataPaths.has(from));
  }

  #apply(node: ClientNode, peer: Peer): ClientContext {
    const derived = this.#derivation.of(node, peer);
    const access = this.#authorization.accessOf(peer).guardedBy(derived);
    const client = new KnownClient(node, peer, derived, access, this);
    if (client.mayBeCanary && this.#cohortOf(client) === 'canary') client.access = access.ofCanaries;
    return client;
  }
}
