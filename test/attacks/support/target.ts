import { once } from 'node:events';
import { connect as connectTcp, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { type ChannelCredentials, credentials } from '@grpc/grpc-js';
import type { XdsClientOptions } from '../../e2e/support/xds-client.ts';

/** PEM texts. */
export interface Identity {
  readonly certificate: string;
  readonly privateKey: string;
}

export interface TargetTls {
  readonly ca: string;
  /** That the relay's certificate must have; undefined: the host. */
  readonly serverName?: string | undefined;
  /** Of the well-behaved client. */
  readonly tenant?: Identity | undefined;
  /** Of whoever attacks: another tenant. */
  readonly attacker?: Identity | undefined;
  /** Of the attacker too: certificates that must not be taken for the tenant's, by what is odd about them. */
  readonly impostors?: Readonly<Record<string, Identity>> | undefined;
}

/** Where a relay listens. Plain data: it goes to other threads. */
export interface Target {
  readonly host: string;
  readonly port: number;
  /** Undefined: plaintext. */
  readonly tls?: TargetTls | undefined;
  /** The address that attacks come from, where the machine has several: without certificates a peer is its address. */
  readonly attackFrom?: string | undefined;
  /** The port of its REST listener. */
  readonly rest?: number | undefined;
  /** http://HOST:PORT of its admin listener. Without one nothing can be said about its memory and its streams. */
  readonly admin?: string | undefined;
  /** Of its processes, if they run on this machine: what they waited for a processor does not count against them. */
  readonly pids?: readonly number[] | undefined;
}

export function addressOf({ host, port }: Target): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Options of TLS as an HTTP/2 client has them; `changes` go over them. */
export function tlsOptions(target: Target, changes: ConnectionOptions = {}): ConnectionOptions {
  const { tls, host, port, attackFrom } = target;
  const { attacker, ca, serverName } = tls ?? {};
  return {
    host,
    port,
    ...(attackFrom === undefined ? {} : { localAddress: attackFrom }),
    ...(ca === undefined ? {} : { ca }),
    ...(serverName === undefined ? {} : { servername: serverName }),
    ...(attacker === undefined ? {} : { cert: attacker.certificate, key: attacker.privateKey }),
    ALPNProtocols: ['h2'],
    ...changes,
  };
}

/** A connected socket, through TLS where the target has it. Errors after that close it and nothing else. */
export async function connectTo(target: Target, ALPNProtocols = ['h2']): Promise<Socket> {
  if (target.tls === undefined) return connectPlain(target);
  const socket = connectTls(tlsOptions(target, { ALPNProtocols }));
  await once(socket, 'secureConnect');
  socket.on('error', ignore);
  return socket;
}

/** TCP and no more, whatever the target speaks on it. */
export async function connectPlain({ host, port, attackFrom }: Target): Promise<Socket> {
  const from = attackFrom === undefined ? {} : { localAddress: attackFrom };
  const socket = connectTcp({ host, port, noDelay: true, ...from });
  await once(socket, 'connect');
  socket.on('error', ignore);
  return socket;
}

/** How grpc-js connects as one of the target's peers, or with a certificate of its own. */
export function secureAs(
  { tls }: Target,
  who: 'tenant' | 'attacker' | Identity,
): Required<Pick<XdsClientOptions, 'secure'>> & XdsClientOptions {
  if (tls === undefined) return { secure: credentials.createInsecure() };
  const identity = typeof who === 'string' ? tls[who] : who;
  const ca = Buffer.from(tls.ca);
  const secure: ChannelCredentials =
    identity === undefined
      ? credentials.createSsl(ca)
      : credentials.createSsl(ca, Buffer.from(identity.privateKey), Buffer.from(identity.certificate));
  return { secure, ...(tls.serverName === undefined ? {} : { serverName: tls.serverName }) };
}

function ignore(): void {}
