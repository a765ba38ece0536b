import type { Socket } from 'node:net';

/** HTTP on a connection, whichever version: node:http2's sessions are such, and `Http1Session`. */
export interface ClientSession {
  /** It ends when what is under way is done. */
  readonly closed: boolean;
  readonly destroyed: boolean;
  /** By TLS. */
  readonly encrypted?: boolean | undefined;
  readonly socket: Socket;
  /** Lets what is under way end, and takes nothing new. */
  close(): void;
  destroy(): void;
  on(event: 'close', listener: () => void): unknown;
}
