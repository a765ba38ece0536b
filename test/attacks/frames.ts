/** Attacks by HTTP/2 frames. Those that have a number of their own in the CVE list are named with it. */
import type { Attack } from './support/attack.ts';
import {
  ADS,
  block,
  callFields,
  data,
  ErrorCode,
  Flag,
  frame,
  goaway,
  headers,
  ping,
  priority,
  reset,
  Setting,
  settings,
  Type,
  uint32,
  windowUpdate,
} from './support/frames.ts';
import type { RawConnection } from './support/raw-connection.ts';
import { lastStream, resetsAtOnce } from './support/reset-at-once.ts';
import { connectPlain } from './support/target.ts';

const call = block(callFields(ADS));
/** What a flood may take: past it, the relay has withstood. */
const bounds = { bytes: 32 << 20, milliseconds: 200 };
const repeat = (portion: Uint8Array, times: number): Buffer =>
  Buffer.concat(Array.from({ length: times }, () => portion));

/** The relay must end the connection, with one of these error codes if it says any. */
export async function isRefused(connection: RawConnection, ...codes: readonly number[]): Promise<void> {
  await connection.isEnded();
  const { goaway } = connection;
  if (goaway !== undefined && codes.length > 0 && !codes.includes(goaway))
    throw new Error(`GOAWAY says ${goaway}, not ${codes.join(' or ')}`);
}

interface Mistake {
  readonly name: string;
  readonly bytes: Uint8Array;
  readonly codes: readonly number[];
}

/** `codes`: what GOAWAY may say; none: anything. */
const mistake = (name: string, bytes: Uint8Array, ...codes: readonly number[]): Mistake => ({
  name,
  bytes,
  codes,
});

/** Each on a connection of its own, which it ends. */
const mistakes = (name: string, list: readonly Mistake[]): Attack => ({
  name,
  async run(arena) {
    for (const { name, bytes, codes } of list) {
      const connection = await arena.raw();
      await connection.send(bytes);
      await isRefused(connection, ...codes).catch((error: Error) => {
        throw new Error(`${name}: ${error.message}`);
      });
    }
  },
});

/** The relay may end the connection or bear it. */
const flood = (name: string, portion: Uint8Array, deaf = false): Attack => ({
  name: `${name}${deaf ? ', and nothing is read' : ''}`,
  async run(arena) {
    const connection = await arena.raw({ deaf });
    await connection.flood(portion, bounds);
  },
});

const floods: readonly Attack[] = [
  {
    name: 'rapid reset: streams are opened and reset at once (CVE-2023-44487)',
    async run(arena) {
      const connection = await arena.raw();
      for (let round = 0; round < 300; round++) {
        const streams = Array.from({ length: 100 }, () => connection.next());
        const portion = streams.flatMap((stream) => [headers(stream, call), reset(stream)]);
        if (!(await connection.send(...portion))) return;
      }
      await isRefused(connection);
    },
  },
  {
    name: 'streams that are reset in the segment that opens them and the connection, with every code',
    async run(arena) {
      for (const [what, first] of resetsAtOnce) {
        const connection = await arena.raw({ first });
        await connection.until(() => connection.ended.has(lastStream), `answer after ${what}`);
      }
    },
  },
  {
    name: 'made to reset: each stream makes a mistake for which the relay resets it (CVE-2025-8671)',
    async run(arena) {
      const connection = await arena.raw();
      for (let round = 0; round < 100; round++) {
        const streams = Array.from({ length: 100 }, () => connection.next());
        const portion = streams.flatMap((stream) => [headers(stream, call), windowUpdate(stream, 0)]);
        if (!(await connection.send(...portion))) return;
      }
    },
  },
  {
    name: 'CONTINUATION without end (CVE-2024-27316)',
    async run(arena) {
      const connection = await arena.raw();
      await connection.send(headers(connection.next(), call, 0));
      const field = block([['x-filler', 'x'.repeat(4000)]]);
      await connection.flood(repeat(frame(Type.CONTINUATION, 0, 1, field), 16), bounds);
      await isRefused(connection);
    },
  },
  {
    name: 'empty CONTINUATION without end',
    async run(arena) {
      const connection = await arena.raw();
      await connection.send(headers(connection.next(), call, 0));
      await connection.flood(repeat(frame(Type.CONTINUATION, 0, 1), 1000), bounds);
    },
  },
  {
    name: 'empty DATA frames on an open stream (CVE-2019-9518)',
    async run(arena) {
      const connection = await arena.raw();
      const stream = await connection.call(ADS);
      await connection.flood(repeat(data(stream, Buffer.alloc(0)), 1000), bounds);
    },
  },
  {
    name: 'padding: DATA frames of which one byte in 256 is data',
    async run(arena) {
      const connection = await arena.raw();
      const stream = await connection.call(ADS);
      const padded = Buffer.concat([Buffer.of(255, 0), Buffer.alloc(255)]);
      await connection.flood(repeat(frame(Type.DATA, Flag.PADDED, stream, padded), 100), bounds);
    },
  },
  flood('PING without end (CVE-2019-9512)', repeat(ping(), 500)),
  flood('PING without end (CVE-2019-9512)', repeat(ping(), 500), true),
  flood('SETTINGS without end (CVE-2019-9515)', repeat(settings([Setting.MAX_FRAME_SIZE, 16_384]), 500)),
  flood(
    'SETTINGS without end (CVE-2019-9515)',
    repeat(settings([Setting.MAX_FRAME_SIZE, 16_384]), 500),
    true,
  ),
  flood(
    'SETTINGS of a thousand settings',
    repeat(settings(...Array.from({ length: 1000 }, () => [99, 1] as const)), 10),
  ),
  flood(
    'PRIORITY without end, in circles (CVE-2019-9513)',
    repeat(Buffer.concat([priority(1, 3), priority(3, 1)]), 500),
  ),
  flood('WINDOW_UPDATE of the connection without end', repeat(windowUpdate(0, 1), 500)),
  flood('frames of a type that nobody knows', repeat(frame(0xaa, 0, 0, Buffer.alloc(100)), 200)),
  flood('GOAWAY without end', repeat(goaway(0, 0), 500)),
];

const windows: readonly Attack[] = [
  {
    name: 'stream windows of 0 that never open: a hundred streams have subscribed, and take nothing',
    async run(arena) {
      for (const connection of await arena.raws(10, { settings: [[Setting.INITIAL_WINDOW_SIZE, 0]] })) {
        for (let each = 0; each < 10; each++) await subscribe(connection);
        await connection.until(() => connection.count(Type.HEADERS) === 10, 'ten answers');
      }
    },
  },
  {
    name: 'a window that opens by one byte at a time (CVE-2019-9511)',
    async run(arena) {
      const connection = await arena.raw({ settings: [[Setting.INITIAL_WINDOW_SIZE, 0]] });
      const stream = await subscribe(connection);
      await connection.flood(windowUpdate(stream, 1), { bytes: 13 * 5000, milliseconds: 600 });
    },
  },
  {
    name: 'the initial window goes up and down under open streams',
    async run(arena) {
      const connection = await arena.raw();
      for (let each = 0; each < 100; each++) await subscribe(connection);
      const swing = Buffer.concat([
        settings([Setting.INITIAL_WINDOW_SIZE, 0]),
        settings([Setting.INITIAL_WINDOW_SIZE, 65_535]),
      ]);
      await connection.flood(repeat(swing, 50), bounds);
    },
  },
  {
    name: 'nothing is read from the socket while answers wait for it (CVE-2019-9517)',
    async run(arena) {
      const connection = await arena.raw({
        deaf: true,
        settings: [[Setting.INITIAL_WINDOW_SIZE, 2 ** 31 - 1]],
      });
      await connection.send(windowUpdate(0, 2 ** 30));
      for (let each = 0; each < 200; each++) await subscribe(connection);
    },
  },
  {
    name: 'WINDOW_UPDATE past 2^31-1 on a stream',
    async run(arena) {
      const connection = await arena.raw();
      const stream = await subscribe(connection);
      await connection.send(windowUpdate(stream, 2 ** 31 - 1), windowUpdate(stream, 2 ** 31 - 1));
      await connection.until(() => connection.closed || connection.ended.has(stream), 'end of the stream');
    },
  },
  {
    name: 'more DATA than the window of the connection',
    async run(arena) {
      const connection = await arena.raw();
      const stream = await connection.call(ADS);
      const prefix = Buffer.concat([Buffer.of(0), uint32(4 << 20)]);
      await connection.send(data(stream, prefix));
      await connection.flood(repeat(data(stream, Buffer.alloc(16_384)), 16), {
        bytes: 64 << 20,
        milliseconds: 2000,
      });
    },
  },
];

const malformed: readonly Attack[] = [
  mistakes('frames that are wrong, each on a connection of its own', [
    mistake('a frame larger than SETTINGS_MAX_FRAME_SIZE', frame(Type.DATA, 0, 1, Buffer.alloc(9), 0xffffff)),
    mistake('DATA on stream 0', data(0, Buffer.from('x')), ErrorCode.PROTOCOL_ERROR),
    mistake('HEADERS on stream 0', headers(0, call), ErrorCode.PROTOCOL_ERROR),
    mistake('HEADERS on an even stream', headers(2, call), ErrorCode.PROTOCOL_ERROR),
    mistake('RST_STREAM of a stream that never was', reset(99), ErrorCode.PROTOCOL_ERROR),
    mistake('SETTINGS on a stream', frame(Type.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
    mistake('SETTINGS of 5 bytes', frame(Type.SETTINGS, 0, 0, Buffer.alloc(5)), ErrorCode.FRAME_SIZE_ERROR),
    mistake(
      'SETTINGS with a frame size of 0',
      settings([Setting.MAX_FRAME_SIZE, 0]),
      ErrorCode.PROTOCOL_ERROR,
    ),
    mistake('SETTINGS_ENABLE_PUSH of 7', settings([Setting.ENABLE_PUSH, 7]), ErrorCode.PROTOCOL_ERROR),
    mistake('PING of 7 bytes', frame(Type.PING, 0, 0, Buffer.alloc(7)), ErrorCode.FRAME_SIZE_ERROR),
    mistake(
      'PUSH_PROMISE of a client',
      frame(Type.PUSH_PROMISE, Flag.END_HEADERS, 1, uint32(2)),
      ErrorCode.PROTOCOL_ERROR,
    ),
    mistake(
      'CONTINUATION without HEADERS',
      frame(Type.CONTINUATION, Flag.END_HEADERS, 1, call),
      ErrorCode.PROTOCOL_ERROR,
    ),
    mistake(
      'PING between HEADERS and CONTINUATION',
      Buffer.concat([headers(1, call, 0), ping()]),
      ErrorCode.PROTOCOL_ERROR,
    ),
    mistake(
      'more padding than the frame has',
      frame(Type.DATA, Flag.PADDED, 1, Buffer.of(200, 1)),
      ErrorCode.PROTOCOL_ERROR,
    ),
    mistake('WINDOW_UPDATE by 0 on the connection', windowUpdate(0, 0), ErrorCode.PROTOCOL_ERROR),
    mistake(
      'WINDOW_UPDATE past 2^31-1 on the connection',
      Buffer.concat([windowUpdate(0, 2 ** 31 - 1), windowUpdate(0, 2 ** 31 - 1)]),
      ErrorCode.FLOW_CONTROL_ERROR,
    ),
    mistake(
      'an initial window of 2^31',
      settings([Setting.INITIAL_WINDOW_SIZE, 2 ** 31]),
      ErrorCode.FLOW_CONTROL_ERROR,
    ),
  ]),
];

const connections: readonly Attack[] = [
  {
    name: 'something else than HTTP/2: HTTP/1.1, TLS, noise',
    async run({ target, use }) {
      const others = [
        'GET / HTTP/1.1\r\nhost: x\r\n\r\n',
        '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03',
        '\0'.repeat(100_000),
      ];
      for (const other of others) {
        const socket = await connectPlain(target);
        use({ [Symbol.dispose]: () => socket.destroy() });
        socket.resume();
        const closed = new Promise((resolve) => socket.once('close', resolve));
        socket.write(other, 'latin1');
        socket.end();
        await closed;
      }
    },
  },
  {
    name: 'five hundred connections that close at once',
    async run({ target }) {
      for (let round = 0; round < 20; round++) {
        const sockets = await Promise.all(Array.from({ length: 25 }, () => connectPlain(target)));
        for (const socket of sockets) socket.resetAndDestroy();
      }
    },
  },
  {
    name: 'two hundred connections that stop within the preface',
    async run({ target, use }) {
      const sockets = await Promise.all(Array.from({ length: 200 }, () => connectPlain(target)));
      for (const socket of sockets) {
        use({ [Symbol.dispose]: () => socket.destroy() });
        socket.write('PRI * HT');
      }
    },
  },
  {
    name: 'a thousand streams of a connection whose HEADERS never end',
    async run(arena) {
      for (const connection of await arena.raws(100))
        await connection.send(headers(connection.next(), call, 0));
    },
  },
  {
    name: 'streams without end, silent: the relay takes no more than it says',
    async run(arena) {
      // Of the connections over TLS that end so, one of fifteen stayed.
      for (const connection of await arena.raws(20)) {
        for (let round = 0; round < 25; round++) {
          const portion = Array.from({ length: 200 }, () => headers(connection.next(), call));
          if (!(await connection.send(...portion))) break;
        }
      }
    },
  },
];

export const frames: readonly Attack[] = [...floods, ...windows, ...malformed, ...connections];

/** An open stream that has asked for all clusters (SotW, a node without anything). */
async function subscribe(connection: RawConnection): Promise<number> {
  const stream = await connection.call(ADS);
  const url = Buffer.from('type.googleapis.com/envoy.config.cluster.v3.Cluster');
  const message = Buffer.concat([Buffer.of(0x12, 0x00, 0x22, url.length), url]);
  await connection.send(data(stream, Buffer.concat([Buffer.of(0), uint32(message.length), message])));
  return stream;
}
