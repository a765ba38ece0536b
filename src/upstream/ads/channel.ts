import type { Address } from '../../wire/address.ts';
import type { Code } from '../../wire/grpc-status.ts';

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
