/** Attacks by header compression (RFC 7541) and by the headers themselves. */
import { isRefused } from './frames.ts';
import type { Attack } from './support/attack.ts';
import {
  ADS,
  block,
  callFields,
  ErrorCode,
  Flag,
  frame,
  headers,
  indexed,
  integer,
  remembered,
  Setting,
  Type,
  tableSize,
} from './support/frames.ts';
import type { RawConnection } from './support/raw-connection.ts';

const call = block(callFields(ADS));
const repeat = (portion: Uint8Array, times: number): Buffer =>
  Buffer.concat(Array.from({ length: times }, () => portion));
/** The first entry of the dynamic table. */
const newest = indexed(62);

/** A header block of any length: HEADERS and as much CONTINUATION as it takes. False if the relay has closed the connection. */
async function sendBlock(connection: RawConnection, bytes: Buffer): Promise<boolean> {
  const stream = connection.next();
  const most = 16_384;
  const parts = [headers(stream, bytes.subarray(0, most), bytes.length <= most ? Flag.END_HEADERS : 0)];
  for (let at = most; at < bytes.length; at += most) {
    const last = at + most >= bytes.length;
    parts.push(frame(Type.CONTINUATION, last ? Flag.END_HEADERS : 0, stream, bytes.subarray(at, at + most)));
  }
  return connection.send(...parts);
}

/** Blocks that no decoder can read: each ends its connection. */
const unreadable: ReadonlyMap<string, Uint8Array> = new Map([
  ['index 0', Buffer.of(0x80)],
  ['an entry that is not there', indexed(4000)],
  ['a table larger than was agreed', tableSize(1 << 20)],
  ['an integer without end', Buffer.concat([Buffer.of(0xff), Buffer.alloc(100, 0x80)])],
  ['a string longer than the block', Buffer.concat([Buffer.of(0x00), integer(0, 7, 100_000)])],
  ['Huffman code that is cut', Buffer.of(0x00, 0x81, 0xff, 0x81, 0xff)],
]);

export const hpack: readonly Attack[] = [
  {
    name: 'HPACK bomb: one entry of 4 KB, named by a thousand bytes in each of a thousand streams',
    async run(arena) {
      const connection = await arena.raw();
      await sendBlock(connection, Buffer.concat([call, remembered('x-bomb', 'x'.repeat(4000))]));
      const bomb = Buffer.concat([call, repeat(newest, 1000)]);
      for (let each = 0; each < 1000; each++) if (!(await sendBlock(connection, bomb))) return;
    },
  },
  {
    name: 'a cookie in 8,000 crumbs, again and again',
    async run(arena) {
      const connection = await arena.raw();
      await sendBlock(connection, Buffer.concat([call, remembered('cookie', 'a')]));
      const crumbs = Buffer.concat([call, repeat(newest, 8000)]);
      for (let each = 0; each < 100; each++) if (!(await sendBlock(connection, crumbs))) return;
    },
  },
  {
    name: 'a header list of 1 MB',
    async run(arena) {
      const connection = await arena.raw();
      const field = block([['x-filler', 'x'.repeat(1000)]]);
      await sendBlock(connection, Buffer.concat([call, repeat(field, 1000)]));
      await connection.until(
        () => connection.closed || connection.goaway !== undefined || connection.ended.size > 0,
        'refusal',
      );
    },
  },
  {
    name: 'thousands of headers without a name and a value (CVE-2019-9516)',
    async run(arena) {
      const connection = await arena.raw();
      const empty = Buffer.concat([call, repeat(block([['', '']]), 5000)]);
      for (let each = 0; each < 50; each++) if (!(await sendBlock(connection, empty))) return;
    },
  },
  {
    name: 'the dynamic table grows and shrinks in each block',
    async run(arena) {
      const connection = await arena.raw();
      const swing = Buffer.concat([tableSize(0), tableSize(4096), call]);
      for (let each = 0; each < 500; each++) if (!(await sendBlock(connection, swing))) return;
    },
  },
  {
    name: 'the relay may have a header table of 4 GB',
    async run(arena) {
      const connection = await arena.raw({ settings: [[Setting.HEADER_TABLE_SIZE, 2 ** 32 - 1]] });
      for (let each = 0; each < 200; each++) await connection.call(`/nowhere/${each}${'x'.repeat(2000)}`);
      await connection.until(() => connection.ended.size === 200, '200 answers');
    },
  },
  {
    name: `header blocks that cannot be read: ${[...unreadable.keys()].join(', ')}`,
    async run(arena) {
      for (const [name, bytes] of unreadable) {
        const connection = await arena.raw();
        await connection.send(headers(connection.next(), bytes));
        await isRefused(connection, ErrorCode.COMPRESSION_ERROR, ErrorCode.PROTOCOL_ERROR).catch(
          (error: Error) => {
            throw new Error(`${name}: ${error.message}`);
          },
        );
      }
    },
  },
  {
    name: 'fields that are no call: twice :path, upper case, none, connection, :status',
    async run(arena) {
      const connection = await arena.raw();
      const odd: readonly Buffer[] = [
        block([...callFields(ADS), [':path', ADS]]),
        block([...callFields(ADS), ['X-Upper', 'x']]),
        block([...callFields(ADS), ['connection', 'close']]),
        block([[':status', '200'], ...callFields(ADS)]),
        block([['te', 'trailers']]),
        block(callFields('')),
        block(callFields('/\xff\xfe')),
      ];
      for (const one of odd) await sendBlock(connection, one);
      await connection.until(
        () => connection.closed || connection.goaway !== undefined || connection.ended.size === odd.length,
        'refusals',
      );
    },
  },
];
