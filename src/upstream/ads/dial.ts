import type { Address } from '../../wire/address.ts';
import type { Code } from '../../wire/status.ts';

export interface LinkHandler {
  connected(): void;
  /** Once, unless it was closed by its owner: it could not be connected, or it is not any more. */
  lost(reason: string): void;
}

export interface LinkStreamHandler {
  /** Bytes are this handler's own. */
  message(bytes: Buffer): void;
  /** Once, unless it was ended by its owner. */
  closed(reason: string, code: Code): void;
}

export interface LinkStream {
  write(bytes: Uint8Array): void;
  end(): void;
}

/** One try at one endpoint, and the connection if it succeeds. It never connects again: that is its owner's decision. */
export interface Link {
  /** Opens a bidirectional stream; only once connected. */
  open(path: string, via: string, handler: LinkStreamHandler): LinkStream;
  close(): void;
}

/** Begins a try: the seam to the transport. */
export type Dial = (endpoint: Address, handler: LinkHandler) => Link;
