import type { Socket } from 'node:net';
import type { Clock } from '../model/clock.ts';
import { handshakeTimeoutMs } from './http2-settings.ts';

/** What every HTTP/2 connection without TLS begins with (RFC 9113 §3.4). No method of HTTP/1.1 begins so. */
const preface = Buffer.from('PRI ');

/** Tells by its first bytes which HTTP is spoken on a plaintext connection. They are there to be read again. */
export function sniffVersion(
  socket: Socket,
  clock: Clock,
  found: (version: 'http1' | 'http2') => void,
): void {
  const timer = clock.after(handshakeTimeoutMs, () => socket.destroy());
  const done = (): void => {
    timer.cancel();
    socket.off('readable', look);
    socket.off('close', done);
    socket.off('error', ignore);
  };
  // Given back only when it is decided: what is given back is readable at once, and would be looked at for ever.
  let first = Buffer.alloc(0);
  const look = (): void => {
    const more: unknown = socket.read();
    if (!Buffer.isBuffer(more)) return;
    first = Buffer.concat([first, more]);
    const length = Math.min(first.length, preface.length);
    const begins = first.subarray(0, length).equals(preface.subarray(0, length));
    if (begins && length < preface.length) return;
    done();
    socket.unshift(first);
    found(begins ? 'http2' : 'http1');
  };
  socket.on('readable', look);
  socket.on('close', done);
  socket.on('error', ignore);
}

/** `close` follows. */
function ignore(): void {}
