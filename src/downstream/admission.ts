import type { Selection } from '../model/selection.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { SelectorFields } from '../wire/requests.ts';
import type { ServerStream } from '../wire/server-stream.ts';
import type {
  ClientContext,
  DownstreamServices,
  SessionShare,
  StreamLimits,
  Subscribed,
} from './services.ts';
import {
  deniesAll,
  excessOf,
  excessOfNames,
  excessOfTypes,
  excessOfVersions,
} from './subscription-limits.ts';
import type { SubscriptionLimits, TypeStream } from './type-stream.ts';

/** The stream whose client is admitted. */
interface AdmittedStream {
  readonly route: { readonly type: unknown };
  readonly types: readonly TypeStream[];
  readonly transport: ServerStream;
}

type Refuse = (reason: string, status: GrpcStatus, logged?: string) => void;

const subscribedOf = ({ info, selection }: TypeStream): Subscribed => ({ url: info.url, selection });

/** The limits on what a client may subscribe to. False: this was too much, and the stream is over. */
export class Admission implements SubscriptionLimits {
  readonly #stream: AdmittedStream;
  readonly #services: DownstreamServices;
  readonly #refuse: Refuse;
  #share: SessionShare | undefined;

  constructor(stream: AdmittedStream, services: DownstreamServices, refuse: Refuse) {
    this.#stream = stream;
    this.#services = services;
    this.#refuse = refuse;
  }

  oneMoreType(client: ClientContext): boolean {
    return this.#admits(client, () => excessOfTypes(this.#stream.types.length + 1));
  }

  names(range: Buffer | undefined, fields: SelectorFields, client: ClientContext): boolean {
    return this.#admits(client, (limits) => excessOfNames(range, fields, limits));
  }

  versions(range: Buffer | undefined, client: ClientContext): boolean {
    return this.#admits(client, () => excessOfVersions(range));
  }

  selection(type: TypeStream, selection: Selection, client: ClientContext): boolean {
    const { route, types } = this.#stream;
    // On a per-type service the RPC fails if the client may have nothing of it.
    if (route.type !== undefined && deniesAll(client, type.info.url, selection)) {
      const message = `this client may not subscribe to any of the ${type.info.short} resources that it names`;
      this.#refuse('denied', { code: Code.PERMISSION_DENIED, message });
      return false;
    }
    const others = types.filter((other) => other !== type).map(subscribedOf);
    const own = { url: type.info.url, selection };
    return (
      this.#admits(client, (limits) => excessOf(own, others, limits)) &&
      this.#sessions(client, [own, ...others])
    );
  }

  /** What the client has subscribed to is the same with other parameters. */
  reselected(client: ClientContext): void {
    this.#sessions(client, this.#stream.types.map(subscribedOf));
  }

  /** How many parameter sets it has taken since this was last asked. */
  takenSessions(): number {
    return this.#share?.taken() ?? 0;
  }

  close(): void {
    this.#share?.release();
  }

  #admits(client: ClientContext, excess: (limits: StreamLimits) => string | undefined): boolean {
    const message = client.exempt ? undefined : excess(this.#services.limits());
    if (message === undefined) return true;
    this.#refuse('subscriptions', { code: Code.RESOURCE_EXHAUSTED, message });
    return false;
  }

  /** A peer may use only a part of the upstream sessions, because other peers need some too. */
  #sessions(client: ClientContext, subscribed: readonly Subscribed[]): boolean {
    if (client.exempt) {
      this.#share?.release();
      return true;
    }
    this.#share ??= this.#services.sessions?.(this.#stream.transport.peer);
    const message = this.#share?.take(subscribed);
    if (message === undefined) return true;
    this.#refuse('upstream_sessions', { code: Code.RESOURCE_EXHAUSTED, message }, message);
    return false;
  }
}
