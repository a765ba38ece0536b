import type { Parameters } from '../../model/parameters.ts';
import type { Holder } from '../../model/transaction.ts';
import { AdsStream } from './ads-stream.ts';
import type { AdsStreamHandler, AdsStreamObserver } from './ads-stream-ports.ts';
import type { Backoff } from './backoff.ts';
import { encodeNode, type SessionRule } from './node.ts';
import type { AdsUpstreamOptions } from './options.ts';
import { streamProtocol } from './protocols.ts';
import type { NodeAndStamp } from './session.ts';
import type { SessionPerParameters } from './session-per-parameters.ts';
import { type Stamp, stampFor, unstamped } from './stamp.ts';
import { isIsolated, methodPath, type StreamId } from './stream-id.ts';
import type { StreamProtocolOptions } from './stream-protocol.ts';

/** Entries of a response that are read in one turn: a few milliseconds. */
const defaultEntriesPerTurn = 1000;

export interface StreamFactoryPorts {
  /** The handler of the streams that deliver for these holders. */
  readonly streamHandler: (holders: readonly string[]) => AdsStreamHandler;
  /** `isolated`: for what may have made the control plane end a stream. */
  readonly backoff: (isolated: boolean) => Backoff;
}

/** Makes what the sessions of an upstream consist of: streams, holders, nodes and stamps. */
export class StreamFactory {
  readonly #options: AdsUpstreamOptions;
  readonly #ports: StreamFactoryPorts;
  readonly #native: boolean;
  readonly #perParameters: SessionPerParameters | undefined;

  constructor(
    options: AdsUpstreamOptions,
    ports: StreamFactoryPorts,
    perParameters: SessionPerParameters | undefined,
  ) {
    this.#options = options;
    this.#ports = ports;
    this.#native = options.variants === 'NATIVE';
    this.#perParameters = perParameters;
  }

  /** A stream of the session for these parameters. */
  stream(
    parameters: Parameters,
    { node, stamp }: NodeAndStamp,
    id: StreamId,
    observer: AdsStreamObserver,
  ): AdsStream {
    const isolated = isIsolated(id);
    const { protocol, clock, backoff } = this.#options;
    const options = this.#protocolOptions(parameters, stamp);
    const { wildcard, named } = options.holders;
    const handler = this.#ports.streamHandler([wildcard.key, named.key]);
    return new AdsStream({
      protocolState: streamProtocol(protocol, options),
      path: methodPath(id, protocol),
      node,
      backoff: this.#ports.backoff(isolated),
      clock,
      // A new isolated stream does not mean that the whole holder is requested again.
      handler: isolated ? { ...handler, opening: () => handler.opening(false) } : handler,
      observer,
      stableAfterMs: backoff.maxMs,
    });
  }

  /** What a session shows to the control plane, encoded. */
  node(rules: readonly SessionRule[], parameters: Parameters): Uint8Array {
    const { node, version } = this.#options;
    return encodeNode({ node, rules, parameters, version, passesVariants: this.#native });
  }

  stamp(rules: readonly SessionRule[], parameters: Parameters): Stamp {
    if (this.#native) return unstamped;
    const keys = rules.map(({ key }) => key);
    return stampFor(keys, parameters, this.#options.maxConstraintDepth);
  }

  holder(parameters: Parameters, role: Holder['role']): Holder {
    const { name } = this.#options;
    const holder = { key: JSON.stringify(['ads', name, parameters.key, role]), upstream: name, role };
    const exactParameters = this.#perParameters?.exactParameters(parameters);
    return exactParameters === undefined ? holder : { ...holder, exactParameters };
  }

  #protocolOptions(parameters: Parameters, stamp: Stamp): StreamProtocolOptions {
    const { maxConstraintDepth, resourceTimeoutMs, entriesPerTurn = defaultEntriesPerTurn } = this.#options;
    return {
      holders: { wildcard: this.holder(parameters, 'wildcard'), named: this.holder(parameters, 'named') },
      locators: this.#native,
      stamp,
      maxConstraintDepth,
      entriesPerTurn,
      resourceTimeoutMs,
    };
  }
}
