import { create } from '@bufbuild/protobuf';
import { StructSchema } from '@bufbuild/protobuf/wkt';
import type { Config } from '../config/config.ts';
import type { ClientContext } from '../downstream/services.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { compileAuthorization } from '../security/authorization.ts';
import { type ClientNode, readClientNode } from '../security/client-node.ts';
import { compileParameterRules } from '../security/derive-parameters.ts';
import { compilePrincipals } from '../security/principals.ts';
import { Code, type GrpcStatus } from '../wire/status.ts';
import type { Peer } from '../wire/transport.ts';

/** Client features by which a client says what it understands (protocol §5, §8). */
const wrappedFeatures = ['xds.config.resource-in-sotw', 'xds.config.supports-resource-in-sotw'];
const ttlFeature = 'xds.config.supports-resource-ttl';

/** A client, and what of its node the rules were applied to. */
interface KnownClient extends ClientContext {
  readonly node: ClientNode;
  /** The rules' metadata keys when the node was read: what is not among them was not kept. */
  readonly metadataKeys: ReadonlySet<string>;
}

/** Makes of a client's node and certificate what the relay keeps of them, by the rules in force. */
export class ClientRules {
  readonly #derivation: ReturnType<typeof compileParameterRules>;
  readonly #authorization: ReturnType<typeof compileAuthorization>;
  readonly #isRelay: (peer: Peer) => boolean;
  readonly #metadataKeys: ReadonlySet<string>;
  readonly #known = new WeakMap<ClientContext, KnownClient>();

  constructor(config: Config, before?: ClientRules) {
    this.#derivation = compileParameterRules(config.parameters);
    this.#authorization = compileAuthorization(config.xds.authorization);
    const { relayPeers } = config.limits;
    const listed = relayPeers.length === 0 ? () => false : compilePrincipals(relayPeers);
    this.#isRelay = (peer) => peer.unix || listed(peer);
    this.#metadataKeys = new Set(config.parameters.flatMap(({ from }) => metadataKey(from) ?? []));
    if (before !== undefined) this.#known = before.#known;
  }

  context(bytes: Buffer, peer: Peer): Result<ClientContext, GrpcStatus> {
    const node = readClientNode(bytes);
    if (!node.ok) return fail({ code: Code.INVALID_ARGUMENT, message: node.error });
    return ok(this.#apply(this.#trim(node.value), peer));
  }

  /** The same client by these rules; undefined if they need what was not kept of its node. */
  renew(client: ClientContext, peer: Peer): ClientContext | undefined {
    const known = this.#known.get(client);
    if (known === undefined || !this.#metadataKeys.isSubsetOf(known.metadataKeys)) return undefined;
    return this.#apply(known.node, peer);
  }

  #apply(node: ClientNode, peer: Peer): ClientContext {
    const derived = this.#derivation.of(node, peer);
    const client: KnownClient = {
      nodeId: node.id,
      cluster: node.cluster,
      wrapped: wrappedFeatures.some((feature) => node.clientFeatures.includes(feature)),
      ttl: node.clientFeatures.includes(ttlFeature),
      access: this.#authorization.classOf(peer),
      exempt: this.#isRelay(peer),
      derived: (authority) => derived.for(authority),
      merged: (own, authority) => derived.merge(own, authority),
      node,
      metadataKeys: this.#metadataKeys,
    };
    this.#known.set(client, client);
    return client;
  }

  /** Metadata can be large: only what a rule looks at is kept. */
  #trim(node: ClientNode): ClientNode {
    if (node.metadata === undefined) return node;
    const fields = Object.entries(node.metadata.fields).filter(([key]) => this.#metadataKeys.has(key));
    return { ...node, metadata: create(StructSchema, { fields: Object.fromEntries(fields) }) };
  }
}

/** The first key of `node.metadata.KEY…`. */
function metadataKey(from: string): string | undefined {
  const [node, metadata, key] = from.split('.');
  return node === 'node' && metadata === 'metadata' ? key : undefined;
}
