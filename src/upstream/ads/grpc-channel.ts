import { isIP, type Socket } from 'node:net';
import { checkServerIdentity, createSecureContext, type PeerCertificate } from 'node:tls';
import {
  ChannelCredentials,
  type ChannelOptions,
  Client,
  type ClientDuplexStream,
  connectivityState,
  Metadata,
  setLogger,
} from '@grpc/grpc-js';
import type { Clock, Timer } from '../../model/clock.ts';
import { getOrMake } from '../../model/maps.ts';
import { shuffled } from '../../model/random.ts';
import { ok, type Result } from '../../model/result.ts';
import { shorten } from '../../model/text.ts';
import type { Log } from '../../observe/log.ts';
import { compilePrincipals } from '../../security/pattern.ts';
import { type Address, formatHostPort, type Lookup } from '../../wire/address.ts';
import { Code, codeOf } from '../../wire/grpc-status.ts';
import { readToken } from '../../wire/named-file.ts';
import { explainConnect, explainError } from '../../wire/node-error.ts';
import { parseSubjectAltNames } from '../../wire/peer.ts';
import { secureContextOptions, type TlsMaterial } from '../../wire/tls-material.ts';
import { VIA_HEADER } from '../../wire/via.ts';

export interface ChannelHandler {
  connected(): void;
  /**
   * Once, unless it was closed by its owner: it could not be connected, or it is not any more. `asked`: the control plane
   * has asked for another connection (GOAWAY without an error), as many do by age.
   */
  lost(reason: string, asked?: boolean): void;
}

export interface ChannelStreamHandler {
  /**
   * Bytes are this handler's own. True: a part of the message is still to be read, by `proceed` in turns of its own, so
   * that others get theirs. The next message waits until then.
   */
  message(bytes: Buffer): boolean;
  /** True: there is still more. */
  proceed(): boolean;
  /** Once, unless it was ended by its owner. Without a code it was not opened, for a reason of this relay's own. */
  closed(reason: string, code?: Code): void;
}

export interface ChannelStream {
  /** `written`: the transport has sent all of it, and the stream was open then. */
  write(bytes: Uint8Array, written?: () => void): void;
  /** At once: what was not sent yet may be lost. */
  end(): void;
  /**
   * Nothing more is written, and nothing more is heard. Resolves when the other end has read everything, or a second
   * later. Until then `written` of earlier ones is called, and not afterwards.
   */
  finish(): Promise<void>;
}

/**
 * One attempt to connect to one endpoint, and then the connection. It never reconnects by itself; its owner opens
 * another one.
 */
export interface Channel {
  /** Opens a bidirectional stream; only once connected. */
  open(path: string, via: string, handler: ChannelStreamHandler): ChannelStream;
  close(): void;
}

/** Begins a try: the seam to the transport. `name`: the host name that the endpoint's address was found under. */
export type Transport = (endpoint: Address, handler: ChannelHandler, name?: string) => Channel;

export interface AdsTls {
  /** What a new connection is made with. The error says why there is nothing for it yet. */
  material(): Promise<Result<TlsMaterial>>;
  /** Undefined: the endpoint's host. */
  readonly serverName: string | undefined;
  /** See `identityError`. */
  readonly serverIdentities: readonly string[];
}

export interface GrpcChannelOptions {
  /** Of streams: name and value; undefined: none. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /** Path of a file with a token, read for each stream: a token lives for minutes, a connection for months. */
  readonly tokenFile?: string | undefined;
  /** Undefined: plaintext. */
  readonly tls: AdsTls | undefined;
  readonly connectTimeoutMs: number;
  /** limits.max_response_bytes; undefined: 64 MiB. */
  readonly maxResponseBytes?: number;
  readonly keepalive: { readonly timeMs: number; readonly timeoutMs: number };
  readonly clock: Clock;
}

export function grpcTransport(options: GrpcChannelOptions): Transport {
  return (endpoint, handler, name) => new GrpcChannel(endpoint, name, options, handler);
}

/** What grpc-js says, of all channels of the process. It would write text to standard error, which is for the log. */
export function logGrpc(log: Pick<Log, 'debug'>): void {
  const write = (...message: readonly unknown[]): void => log.debug(`grpc-js: ${message.join(' ')}`);
  setLogger({ error: write, info: write, debug: write });
}

const defaultMaxResponseBytes = 64 * 1024 * 1024;
const longestTimeoutMs = 2 ** 31 - 1;

class GrpcChannel implements Channel {
  readonly #handler: ChannelHandler;
  readonly #options: GrpcChannelOptions;
  #client: Client | undefined;
  /** Of the connection that is being made. */
  #socket: Socket | undefined;
  readonly #timeout: Timer;
  #phase: 'connecting' | 'connected' | 'ending' | 'over' = 'connecting';
  /** A stream ended with the connection. */
  #droppedStreams = false;

  /** `name`: by which the endpoint is known, if it is not the address itself. */
  constructor(
    address: Address,
    name: string | undefined,
    options: GrpcChannelOptions,
    handler: ChannelHandler,
  ) {
    this.#handler = handler;
    this.#options = options;
    const { clock, connectTimeoutMs } = options;
    this.#timeout = clock.after(connectTimeoutMs, () =>
      this.#lose(`no connection within ${connectTimeoutMs / 1000} s`),
    );
    void this.#connect(address, name);
  }

  open(path: string, via: string, handler: ChannelStreamHandler): ChannelStream {
    const client = this.#client;
    if (client === undefined) throw new Error('a stream was opened before the connection');
    const metadata = streamMetadata(this.#options, via);
    if (!metadata.ok) return unopened(`token_file ${metadata.error}`, handler);
    const call = client.makeBidiStreamRequest<Buffer, Buffer>(path, same, same, metadata.value);
    return stream(call, this.#options, handler, () => {
      if (this.#phase !== 'ending') return false;
      this.#droppedStreams = true;
      return true;
    });
  }

  close(): void {
    // grpc-js waits for TLS and SETTINGS for ever, also once it is closed.
    if (this.#phase === 'connecting') this.#socket?.destroy();
    this.#phase = 'over';
    this.#timeout.cancel();
    this.#client?.close();
  }

  #dialled(socket: Socket): void {
    if (this.#phase === 'over') socket.destroy();
    this.#socket = socket;
  }

  async #connect(address: Address, name: string | undefined): Promise<void> {
    const options = this.#options;
    const material = (await options.tls?.material()) ?? ok({});
    if (this.#phase === 'over') return;
    if (!material.ok) {
      this.#lose(material.error);
      return;
    }
    const secure =
      options.tls === undefined
        ? ChannelCredentials.createInsecure()
        : secureCredentials(material.value, hostOf(address, name, options.tls), options.tls.serverIdentities);
    const credentials = watched(secure, (socket) => this.#dialled(socket));
    this.#client = new Client(target(address), credentials, channelOptions(address, name, options));
    this.#watch(this.#client);
  }

  #watch(client: Client): void {
    if (this.#phase === 'over' || this.#phase === 'ending') return;
    const channel = client.getChannel();
    const state = channel.getConnectivityState(this.#phase === 'connecting');
    if (this.#phase === 'connected' && state !== connectivityState.READY) {
      this.#phase = 'ending';
      setImmediate(() => setImmediate(() => this.#ended()));
      return;
    }
    if (this.#phase === 'connecting' && state === connectivityState.TRANSIENT_FAILURE) {
      this.#explain(client);
      return;
    }
    channel.watchConnectivityState(state, Number.POSITIVE_INFINITY, () => this.#watch(client));
    if (this.#phase === 'connecting' && state === connectivityState.READY) {
      this.#phase = 'connected';
      this.#timeout.cancel();
      this.#handler.connected();
    }
  }

  /**
   * grpc-js does not say why a connection ended. After a GOAWAY without an error the streams go on; when the connection
   * breaks, they end at once.
   */
  #ended(): void {
    if (this.#droppedStreams) this.#lose('the connection was closed');
    else this.#lose('the control plane has ended the connection', true);
  }

  /** The channel says that it failed but not why; a call on it does, at once. */
  #explain(client: Client): void {
    const deadline = Date.now() + 1000;
    const call = client.makeUnaryRequest('/', same, same, Buffer.alloc(0), { deadline }, (error) =>
      this.#lose(error === null ? 'no connection' : explainConnect(error.details)),
    );
    call.on('error', () => {});
  }

  #lose(reason: string, asked = false): void {
    if (this.#phase === 'over') return;
    this.close();
    this.#handler.lost(reason, asked);
  }
}

/** `dialled` hears of each socket before it is shown to these credentials: grpc-js keeps it to itself. */
function watched(credentials: ChannelCredentials, dialled: (socket: Socket) => void): ChannelCredentials {
  const create = credentials._createSecureConnector.bind(credentials);
  credentials._createSecureConnector = (...args) => {
    const connector = create(...args);
    const connect = connector.connect.bind(connector);
    connector.connect = (socket) => {
      dialled(socket);
      return connect(socket);
    };
    return connector;
  };
  return credentials;
}

/** How long the other end may take to end a stream that this one has half-closed. */
const longestFinishMs = 1000;

const same = (bytes: Buffer): Buffer => bytes;

/** So much of a first request is read in a millisecond at least. */
const leastBytesPerMs = 64;

/** How long responses may be handled without a break, in milliseconds: clients wait meanwhile. */
const slice = 10;

/** `isDropped`: asked when the stream ends; it ended with the connection, and its owner hears of that. */
function stream(
  call: ClientDuplexStream<Buffer, Buffer>,
  { clock, connectTimeoutMs, keepalive }: GrpcChannelOptions,
  handler: ChannelStreamHandler,
  isDropped: () => boolean,
): ChannelStream {
  /** So long a control plane may leave unread what was written. */
  const unreadMs = keepalive.timeMs + keepalive.timeoutMs;
  let over = false;
  /** What is not written yet is not. */
  let gone = false;
  /** A part of the last response is still to be read. */
  let reading = false;
  /** Handling responses since the last break, in milliseconds. */
  let spent = 0;
  /** How it has ended, if that was by an error. */
  let failed: readonly [reason: string, code: Code] | undefined;
  /** The control plane has to read before much of it is read. */
  let unread: Timer | undefined;
  const isRead = (): void => {
    unread?.cancel();
    unread = undefined;
  };
  /** The first request has to be sent. Past MAX_CONCURRENT_STREAMS Node keeps it and says nothing. */
  let untaken: Timer | undefined;
  let isTaken = false;
  const taken = (): void => {
    isTaken = true;
    untaken?.cancel();
  };
  const lose = (): void => {
    gone = true;
    isRead();
    taken();
  };
  const close = (reason: string, code?: Code): void => {
    if (over) return;
    over = true;
    lose();
    if (!isDropped()) handler.closed(reason, code);
  };
  /** Its end comes after what it has sent, and grpc-js says nothing of what was written to one that has ended. */
  const waitForReader = (): void => {
    isRead();
    unread = clock.after(unreadMs, () => {
      close(`the control plane has read nothing for ${unreadMs / 1000} s`, Code.UNAVAILABLE);
      call.cancel();
    });
  };
  const waitForRoom = (bytes: number): void => {
    const longest = connectTimeoutMs + bytes / leastBytesPerMs;
    untaken = clock.after(longest, () => {
      const seconds = Math.round(longest / 100) / 10;
      close(
        `no first request was taken within ${seconds} s: the control plane, or a proxy before it, may allow no more streams on a connection`,
      );
      call.cancel();
    });
  };
  const resume = (): void => {
    spent = 0;
    // A server that sends but does not read gets few more ACKs queued up for it.
    if (!call.writableNeedDrain || failed !== undefined) call.resume();
  };
  const proceed = (): void => {
    reading = !over && handler.proceed();
    setImmediate(reading ? proceed : resume);
  };
  call.on('data', (bytes: Buffer) => {
    if (over) return;
    const start = performance.now();
    reading = handler.message(bytes);
    spent += performance.now() - start;
    if (!reading && spent < slice) return;
    // What has arrived meanwhile may be thousands of responses, and one may have thousands of resources: others have
    // their turn between them.
    call.pause();
    setImmediate(reading ? proceed : resume);
  });
  call.on('drain', () => {
    isRead();
    if (!reading) resume();
  });
  // What came before is read first, as it is where the stream ends without an error.
  call.on('error', (error) => {
    failed = [explainError(error), codeOf('code' in error ? Number(error.code) : Code.UNKNOWN)];
    if (!over) isDropped();
    lose();
    if (!reading) resume();
  });
  call.on('end', () => close(...(failed ?? (['the control plane ended the stream', Code.OK] as const))));
  return {
    write(bytes, written) {
      if (over || failed !== undefined) return;
      if (!isTaken && untaken === undefined) waitForRoom(bytes.length);
      const sent = (): void => {
        taken();
        if (unread !== undefined) waitForReader();
        // The end of the stream may have arrived before.
        if (written !== undefined) setImmediate(() => !gone && written());
      };
      const hasRoom = call.write(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), sent);
      if (hasRoom) return;
      call.pause();
      if (unread === undefined) waitForReader();
    },
    end() {
      if (over) return;
      over = true;
      lose();
      call.cancel();
    },
    finish() {
      if (over) return Promise.resolve();
      over = true;
      isRead();
      taken();
      call.end();
      call.resume();
      return new Promise((resolve) => {
        const done = (): void => {
          timer.cancel();
          gone = true;
          call.cancel();
          resolve();
        };
        const timer = clock.after(longestFinishMs, done);
        // What it has read may have been written in this turn.
        call.once('end', () => setImmediate(done));
        call.once('error', done);
      });
    },
  };
}

/** A stream that fails before it begins, as soon as its owner has it. */
function unopened(reason: string, handler: ChannelStreamHandler): ChannelStream {
  let over = false;
  setImmediate(() => {
    if (!over) handler.closed(reason);
  });
  return {
    write: () => {},
    end: () => {
      over = true;
    },
    finish: () => {
      over = true;
      return Promise.resolve();
    },
  };
}

function target(endpoint: Address): string {
  return endpoint.kind === 'unix'
    ? `unix:${endpoint.path}`
    : `dns:${formatHostPort(endpoint.host, endpoint.port)}`;
}

/** The name or address that the certificate must be for, where no identities are configured. */
const hostOf = (address: Address, name: string | undefined, { serverName }: AdsTls): string =>
  serverName ?? name ?? (address.kind === 'tcp' ? address.host : 'localhost');

/**
 * TLS tells no server name where there is only an address (RFC 6066 §3), but grpc-js always tells one, and Node refuses
 * an address as one from 26 on. This is nobody's (RFC 6761), and the certificate is checked for the address.
 */
const reservedHostName = 'ip-address.invalid';

function secureCredentials(
  material: TlsMaterial,
  host: string,
  identities: readonly string[],
): ChannelCredentials {
  return ChannelCredentials.createFromSecureContext(createSecureContext(secureContextOptions(material)), {
    checkServerIdentity: (_name, peer) => identityError(host, identities, peer),
  });
}

function channelOptions(
  address: Address,
  name: string | undefined,
  { tls, keepalive, maxResponseBytes = defaultMaxResponseBytes }: GrpcChannelOptions,
): ChannelOptions {
  const options: ChannelOptions = {
    'grpc.max_receive_message_length': maxResponseBytes,
    'grpc.max_send_message_length': -1,
    'grpc.keepalive_time_ms': keepalive.timeMs,
    'grpc.keepalive_timeout_ms': keepalive.timeoutMs,
    // Servers take pings without a stream for an attack.
    'grpc.keepalive_permit_without_calls': 0,
    // A connection of its own for each try, that lives until it is closed.
    'grpc.use_local_subchannel_pool': 1,
    'grpc.client_idle_timeout_ms': longestTimeoutMs,
    'grpc.enable_retries': 0,
    // Retries are off, but what would be kept for them, a MiB, counts as written as soon as it is kept.
    'grpc.per_rpc_retry_buffer_size': 0,
    'grpc.enable_channelz': 0,
    'grpc.service_config_disable_resolution': 1,
    // The configuration says where to go; a proxy for the way out of the network has no part in it.
    'grpc.enable_http_proxy': 0,
    'grpc-node.flow_control_window': 1024 * 1024,
  };
  if (name !== undefined && address.kind === 'tcp')
    options['grpc.default_authority'] = formatHostPort(name, address.port);
  if (tls === undefined) return options;
  if (name !== undefined) options['grpc.ssl_target_name_override'] = name;
  if (tls.serverName !== undefined) {
    options['grpc.ssl_target_name_override'] = tls.serverName;
    options['grpc.default_authority'] = tls.serverName;
  }
  if (isIP(hostOf(address, name, tls)) !== 0) options['grpc.ssl_target_name_override'] = reservedHostName;
  return options;
}

/** The headers of a stream that is opened now. The error says why there is no token. */
function streamMetadata({ headers = [], tokenFile }: GrpcChannelOptions, via: string): Result<Metadata> {
  const metadata = new Metadata();
  for (const [name, value] of headers) metadata.set(name, value);
  if (tokenFile !== undefined) {
    const token = readToken(tokenFile);
    if (!token.ok) return token;
    metadata.set('authorization', `Bearer ${token.value}`);
  }
  if (via !== '') metadata.set(VIA_HEADER, via);
  return ok(metadata);
}

/**
 * Why a certificate, whose chain has been verified, is not one of the control plane that is meant; undefined if it is.
 * Only subject alternative names count (RFC 9525): Node would take the common name where there is no DNS name, which an
 * authority that vouches for URIs need not have looked at. `identities`: URIs and `dns:NAME`s, `*` stands for any
 * characters. It must have one of them; where there are none, it must be for the host.
 */
export function identityError(
  host: string,
  identities: readonly string[],
  peer: PeerCertificate,
): Error | undefined {
  const names = peer.subjectaltname ?? '';
  const sans = parseSubjectAltNames(names);
  const has = `the control plane's certificate has ${names === '' ? 'no subject alternative name' : shorten(names, 300)}`;
  const isFor = (name: string): boolean =>
    (isIP(name) !== 0 || sans.dnsSans.length > 0) && checkServerIdentity(name, peer) === undefined;
  if (identities.length === 0) {
    if (isFor(host)) return undefined;
    return new Error(`${has}: it is not for ${host} (see server_name and server_identities)`);
  }
  const named = compilePrincipals(identities)(sans);
  // A certificate may have wildcards of its own, which stand for one label.
  if (named || identities.some((identity) => identity.startsWith('dns:') && isFor(identity.slice(4)))) {
    return undefined;
  }
  return new Error(`${has}: none of it is in server_identities: ${identities.join(', ')}`);
}

/**
 * An endpoint that is a host name stands for all its addresses (docs/adr/0127-addresses-of-a-name.md). Each try looks the
 * name up again and goes through its addresses in random order until one is connected. It has failed when all have.
 * `random`: 0 ≤ x < 1. `connectTimeoutMs`: for the lookup, and again for each address.
 */
export function addressesTransport(
  transport: Transport,
  lookup: Lookup,
  {
    clock,
    connectTimeoutMs,
    random,
  }: Pick<GrpcChannelOptions, 'clock' | 'connectTimeoutMs'> & {
    readonly random: () => number;
  },
): Transport {
  /** Those found last, as a lookup that fails changes nothing; and which one was given up, because it did not answer. */
  const names = new Map<string, { found: readonly string[]; avoided?: string | undefined }>();
  return (endpoint, handler) => {
    if (endpoint.kind === 'unix' || isIP(endpoint.host) !== 0) return transport(endpoint, handler);
    const { host: name, port } = endpoint;
    const known = getOrMake(names, name, () => ({ found: [] }));
    let phase: 'looking up' | 'connecting' | 'connected' | 'over' = 'looking up';
    let current: { readonly channel: Channel; readonly host: string } | undefined;
    const reasons = new Set<string>();
    const lose: ChannelHandler['lost'] = (reason, asked) => {
      phase = 'over';
      handler.lost(reason, asked);
    };
    const tryNext = ([host, ...left]: readonly string[]): void => {
      if (host === undefined) {
        lose([...reasons].toSorted().join('; '));
        return;
      }
      const connected = (): void => {
        phase = 'connected';
        handler.connected();
      };
      const lost: ChannelHandler['lost'] = (reason, asked) => {
        if (phase === 'connected') lose(reason, asked);
        else {
          reasons.add(reason);
          tryNext(left);
        }
      };
      current = { channel: transport({ kind: 'tcp', host, port }, { connected, lost }, name), host };
    };
    const found = (hosts: readonly string[], problem: string): void => {
      if (phase !== 'looking up') return;
      timer.cancel();
      phase = 'connecting';
      if (hosts.length > 0) known.found = hosts;
      if (known.found.length === 0) reasons.add(`${name}: ${problem}`);
      const { avoided } = known;
      // Stable: the others come first, in their random order.
      tryNext(
        shuffled(known.found, random).toSorted((a, b) => Number(a === avoided) - Number(b === avoided)),
      );
    };
    const timer = clock.after(connectTimeoutMs, () =>
      found([], `not looked up within ${connectTimeoutMs / 1000} s`),
    );
    lookup(name).then(
      (hosts) => found(hosts, 'the name has no addresses'),
      (error: unknown) => found([], explainError(error)),
    );
    return {
      open(path, via, streamHandler) {
        if (current === undefined) throw new Error('a stream was opened before the connection');
        return current.channel.open(path, via, streamHandler);
      },
      close() {
        // Its owner gives up a connection that does not answer; a connection that ends by itself is no reason to avoid it.
        if (phase === 'connected') known.avoided = current?.host;
        phase = 'over';
        timer.cancel();
        current?.channel.close();
      },
    };
  };
}
