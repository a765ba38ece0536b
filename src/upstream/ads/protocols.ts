import { DeltaStrategy } from './delta-strategy.ts';
import { ProtocolLoop } from './protocol-loop.ts';
import { SotwStrategy } from './sotw-strategy.ts';
import type { StreamProtocol, StreamProtocolOptions } from './stream-protocol.ts';

/** The loop with the strategy of a protocol. */
export function streamProtocol(protocol: 'DELTA' | 'SOTW', options: StreamProtocolOptions): StreamProtocol {
  return protocol === 'SOTW'
    ? new ProtocolLoop(options, (...of) => new SotwStrategy(...of))
    : new ProtocolLoop(options, (...of) => new DeltaStrategy(...of));
}
