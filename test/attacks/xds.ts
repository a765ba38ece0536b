/** Attacks by requests of xDS that are too large, too many, too deep or no requests at all. */
import { create, toBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { StructSchema } from '@bufbuild/protobuf/wkt';
import { Code } from '../../src/wire/grpc-status.ts';
import { eventually } from '../e2e/support/eventually.ts';
import type { XdsClient } from '../e2e/support/xds-client.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import type { Attack } from './support/attack.ts';

const MB = 1024 * 1024;
const cds = typeOf('cds');
const eds = typeOf('eds');
let invented = 0;
/** So many names, each of its own. */
const names = (count: number, prefix = 'name'): readonly string[] =>
  Array.from({ length: count }, (_, at) => `${prefix}-${at}`);

/** A field of bytes or text. */
function field(number: number, content: Uint8Array | string): Uint8Array {
  const writer = new BinaryWriter().tag(number, WireType.LengthDelimited);
  return (typeof content === 'string' ? writer.string(content) : writer.bytes(content)).finish();
}

/** A struct in a struct in a struct: field `a` holds the next one. */
function nested(depth: number): Uint8Array {
  const starts: Buffer[] = [];
  let length = 0;
  const wrap = (...parts: readonly Uint8Array[]): void => {
    const start = Buffer.concat(parts);
    starts.push(start);
    length += start.length;
  };
  const sized = (tag: number): Uint8Array => new BinaryWriter().uint32(tag).uint32(length).finish();
  for (let level = 0; level < depth; level++) {
    // Value.struct_value, MapEntry.value, MapEntry.key, Struct.fields
    wrap(sized(0x2a));
    wrap(field(1, 'a'), sized(0x12));
    wrap(sized(0x0a));
  }
  return Buffer.concat(starts.toReversed());
}

/** Every one of these is the first message of a stream, which must end or go on, as the relay likes. */
const messages = (name: string, list: () => readonly Uint8Array[]): Attack => ({
  name,
  async run(arena) {
    for (const bytes of list()) {
      for (const protocol of ['sotw', 'delta'] as const) {
        const client = arena.xds(protocol);
        client.raw(Buffer.from(bytes));
        client.raw(Buffer.from(bytes));
        await settled(client);
      }
    }
  },
});

/** It has ended, or answers for something that exists; a stream that is slowed down is left alone. */
async function settled(client: XdsClient): Promise<void> {
  client.subscribe('cds', ['shop']);
  try {
    await eventually(
      () => {
        if (client.status === undefined && client.received.length === 0) throw new Error('not yet');
      },
      { timeout: 300, pause: 10 },
    );
  } catch {
    // reading pauses: subscription_changes_per_second
  }
}

export const xds: readonly Attack[] = [
  {
    name: 'more than max_request_bytes in one request',
    async run(arena) {
      const client = arena.xds('delta');
      client.delta('eds', { resourceNamesSubscribe: ['x'.repeat(5 * MB)] });
      const { code } = await client.ends();
      if (code !== Code.RESOURCE_EXHAUSTED) throw new Error(`${code}`);
    },
  },
  {
    name: 'more than max_subscriptions_per_stream names',
    async run(arena) {
      for (const protocol of ['sotw', 'delta'] as const) {
        const client = arena.xds(protocol);
        client.subscribe('eds', names(50_000));
        const { code } = await client.ends();
        if (code !== Code.RESOURCE_EXHAUSTED) throw new Error(`${protocol}: ${code}`);
      }
    },
  },
  {
    name: '69,000 names unsubscribed at once',
    async run(arena) {
      const client = arena.xds('delta');
      client.delta('eds', { resourceNamesSubscribe: [...names(9000)] });
      client.delta('eds', { resourceNamesUnsubscribe: [...names(9000), ...names(60_000, 'never')] });
      await settled(client);
    },
  },
  {
    name: 'more parameter sets than there are upstream sessions, all of one client',
    async run(arena) {
      const client = arena.xds('delta');
      const locators = names(500).map((env) => ({ name: 'shop', dynamicParameters: { env } }));
      client.delta('cds', { resourceLocatorsSubscribe: locators });
      await settled(client);
      // Another client, of a parameter set that nobody has yet.
      const other = arena.xds('delta', { node: { id: 'other', metadata: { env: `new-${invented++}` } } });
      other.subscribe('cds', ['shop']);
      await other.gets('cds');
    },
  },
  {
    name: 'types that nobody knows: a thousand of them, and such as are 1 MB long',
    async run(arena) {
      for (const protocol of ['sotw', 'delta'] as const) {
        // First: the other one costs the peer its share, and then 1 MB may not be read in time.
        const long = arena.xds(protocol);
        long.subscribe(`type.googleapis.com/${'x'.repeat(MB)}`);
        const { code } = await long.ends();
        if (code !== Code.INVALID_ARGUMENT) throw new Error(`${protocol}: ${code}`);
        const many = arena.xds(protocol);
        for (const type of names(1000, 'type.googleapis.com/invented')) many.subscribe(type, ['x']);
        await settled(many);
      }
    },
  },
  {
    name: 'one name 300,000 times in one request',
    async run(arena) {
      for (const protocol of ['sotw', 'delta'] as const) {
        const client = arena.xds(protocol);
        client.subscribe(
          'cds',
          Array.from({ length: 300_000 }, () => 'shop'),
        );
        await settled(client);
      }
    },
  },
  {
    name: 'names of 1 MB, empty ones, and such as patterns are made of',
    async run(arena) {
      const odd = [
        'x'.repeat(MB),
        '',
        '*',
        '/'.repeat(100_000),
        '%'.repeat(100_000),
        `xdstp://${'a/'.repeat(50_000)}*`,
        `xdstp://a/b/c?${'k=v&'.repeat(50_000)}`,
        '\u0000',
        '__proto__',
        'constructor',
      ];
      for (const protocol of ['sotw', 'delta'] as const) {
        const client = arena.xds(protocol);
        for (const name of odd) client.subscribe('cds', [name, 'shop']);
        await settled(client);
      }
    },
  },
  {
    name: 'locators with 20,000 parameters, and with keys of objects',
    async run(arena) {
      const dynamicParameters = Object.fromEntries(names(20_000).map((name) => [name, 'v']));
      const proto = Object.fromEntries(
        ['__proto__', 'constructor', 'hasOwnProperty'].map((key) => [key, 'v']),
      );
      const client = arena.xds('delta');
      client.delta('cds', { resourceLocatorsSubscribe: [{ name: 'shop', dynamicParameters }] });
      client.delta('cds', { resourceLocatorsSubscribe: [{ name: 'shop', dynamicParameters: proto }] });
      await settled(client);
    },
  },
  {
    name: 'a hundred thousand initial_resource_versions',
    async run(arena) {
      const versions = Object.fromEntries(names(100_000).map((name) => [name, 'v@0123456789abcdef']));
      const client = arena.xds('delta');
      client.delta('cds', { initialResourceVersions: versions, resourceNamesSubscribe: ['shop'] });
      await settled(client);
    },
  },
  messages('metadata that is 10,000 levels deep, or 3 MB wide', () => {
    const node = (metadata: Uint8Array): Uint8Array =>
      field(1, Buffer.concat([field(1, 'x'), field(3, metadata)]));
    const wide = create(StructSchema, {
      fields: Object.fromEntries(
        names(100_000).map((key) => [key, { kind: { case: 'stringValue' as const, value: 'v' } }]),
      ),
    });
    const deep = nested(10_000);
    return [node(deep), node(toBinary(StructSchema, wide))].flatMap((bytes) => [
      bytes,
      // The node is field 1 of a delta request, and 2 of a SotW one.
      Buffer.concat([Buffer.of(0x12), bytes.subarray(1)]),
    ]);
  }),
  messages('bytes that are no request: cut, without end, groups, wrong wire types, no UTF-8', () => {
    const valid = toBinary(StructSchema, create(StructSchema, {}));
    const request = Buffer.concat([field(2, field(1, 'x')), field(4, cds), field(3, 'shop'), valid]);
    return [
      request.subarray(0, -1),
      Buffer.alloc(20, 0xff),
      Buffer.concat([request, Buffer.of(0x1a), Buffer.alloc(9, 0xff), Buffer.of(0x01)]),
      Buffer.concat([request, Buffer.alloc(100_000, 0x5b)]),
      Buffer.concat([request, Buffer.alloc(1_000_000, 0x00)]),
      Buffer.concat([request, Buffer.of(0x18, 0x01, 0x20, 0x01)]),
      field(4, Buffer.alloc(50, 0xc0)),
      Buffer.concat(Array.from({ length: 100_000 }, () => field(4, eds))),
      Buffer.concat(Array.from({ length: 100_000 }, () => field(2, field(1, 'x')))),
    ];
  }),
  {
    name: 'ACKs, NACKs and stale nonces without end',
    async run(arena) {
      for (const protocol of ['sotw', 'delta'] as const) {
        const client = arena.xds(protocol);
        client.subscribe('cds', ['shop']);
        const { nonce } = await client.gets('cds');
        const errorDetail = { code: 3, message: '<b>no</b>'.repeat(1000) };
        for (let each = 0; each < 300; each++) {
          for (const responseNonce of [nonce, 'stale', 'x'.repeat(1000)]) {
            if (protocol === 'sotw')
              client.sotw('cds', { responseNonce, resourceNames: ['shop'], errorDetail });
            else client.delta('cds', { responseNonce, errorDetail });
          }
        }
        await settled(client);
      }
    },
  },
  {
    name: 'subscribed and unsubscribed as fast as the socket takes it',
    async run(arena) {
      const client = arena.xds('delta');
      const list = names(500);
      for (let round = 0; round < 200; round++) {
        client.delta('cds', { resourceNamesSubscribe: [...list, '*'] });
        client.delta('cds', { resourceNamesUnsubscribe: [...list, '*'] });
      }
      await settled(client);
    },
  },
  {
    name: 'a node that changes with every request',
    async run(arena) {
      const client = arena.xds('sotw');
      for (let each = 0; each < 500; each++) {
        const node = { id: `x-${each}`, cluster: 'c'.repeat(1000) };
        client.sotw('cds', { node, resourceNames: ['shop'] });
      }
      await settled(client);
    },
  },
];
