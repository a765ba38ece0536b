import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import fc from 'fast-check';
import type { ClientResourceStatus } from '../../src/gen/envoy/admin/v3/config_dump_shared_pb.ts';
import {
  ClientStatusResponseSchema,
  type ConfigStatus,
} from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import {
  ClientStatusWriter,
  encodedResponse,
  type StatusEntry,
  sizeOf,
} from '../../src/wire/client-status.ts';

type FcInfer<A> = A extends fc.Arbitrary<infer T> ? T : never;

const milliseconds = fc.nat(2 ** 31).map((half) => half * 2000 + 7);
const text = fc.string({ unit: 'grapheme', maxLength: 200 });
const body = fc
  .oneof(
    fc.uint8Array({ maxLength: 300 }),
    fc.nat(70_000).map((length) => new Uint8Array(length)),
  )
  .map((value) => toBinary(AnySchema, create(AnySchema, { typeUrl: 'type.googleapis.com/x', value })));
const entry: fc.Arbitrary<StatusEntry> = fc.record(
  {
    typeUrl: text,
    name: text,
    version: text,
    body,
    lastUpdated: milliseconds,
    configStatus: fc.nat(4),
    clientStatus: fc.nat(5),
    error: fc.record({ at: milliseconds, details: text, version: text }),
  },
  { requiredKeys: ['typeUrl', 'name'] },
);
const client = fc.record({
  nodeId: text,
  cluster: text,
  scope: text,
  entries: fc.array(entry, { maxLength: 5 }),
});
const clients = fc.array(client, { maxLength: 4 });

/** The same by protobuf-es. */
function expected(from: FcInfer<typeof clients>) {
  return create(ClientStatusResponseSchema, {
    config: from.map(({ nodeId, cluster, scope, entries }) => ({
      node: { id: nodeId, cluster },
      clientScope: scope,
      genericXdsConfigs: entries.map(({ version = '', body: any, lastUpdated, error, ...rest }) => ({
        typeUrl: rest.typeUrl,
        name: rest.name,
        versionInfo: version,
        configStatus: (rest.configStatus ?? 0) as ConfigStatus,
        clientStatus: (rest.clientStatus ?? 0) as ClientResourceStatus,
        ...(any === undefined ? {} : { xdsConfig: fromBinary(AnySchema, any) }),
        ...(lastUpdated === undefined ? {} : { lastUpdated: timestampFromMs(lastUpdated) }),
        ...(error === undefined
          ? {}
          : {
              errorState: {
                details: error.details,
                versionInfo: error.version,
                lastUpdateAttempt: timestampFromMs(error.at),
              },
            }),
      })),
    })),
  });
}

/** Undefined: too large. */
function written(from: FcInfer<typeof clients>, maxBytes: number): ClientStatusWriter | undefined {
  const writer = new ClientStatusWriter(maxBytes);
  for (const { entries, ...rest } of from) {
    if (!entries.every((one) => writer.entry(one)) || !writer.client(rest)) return undefined;
  }
  return writer;
}

describe('client status, written by hand', () => {
  it('is what protobuf reads and writes', () => {
    fc.assert(
      fc.property(clients, (from) => {
        const pieces = written(from, Number.POSITIVE_INFINITY)?.take() ?? [];
        expect(fromBinary(ClientStatusResponseSchema, Buffer.concat(pieces))).to.deep.equal(expected(from));
        const encoded = toBinary(ClientStatusResponseSchema, encodedResponse(pieces));
        expect(Buffer.concat(pieces).equals(encoded)).to.equal(true);
        // As another process sends it: several clients in one piece.
        const whole = toBinary(ClientStatusResponseSchema, encodedResponse([encoded]));
        expect(Buffer.from(whole).equals(encoded)).to.equal(true);
      }),
    );
  });

  it('of megabytes too', () => {
    const entries = Array.from({ length: 400 }, (_, index): StatusEntry => {
      const value = new Uint8Array((index * 37) % 20_000).fill(index);
      return {
        typeUrl: 'type.googleapis.com/x',
        name: `name-${index}`,
        body: toBinary(AnySchema, create(AnySchema, { value })),
      };
    });
    const from = [1, 2].map((number) => ({ nodeId: `${number}`, cluster: '', scope: '', entries }));
    const pieces = written(from, Number.POSITIVE_INFINITY)?.take() ?? [];
    expect(fromBinary(ClientStatusResponseSchema, Buffer.concat(pieces))).to.deep.equal(expected(from));
  });

  it('is refused from the first byte past the bound', () => {
    fc.assert(
      fc.property(clients, (from) => {
        const size = sizeOf(written(from, Number.POSITIVE_INFINITY)?.take() ?? []);
        expect(written(from, size)).to.not.equal(undefined);
        if (size > 0) expect(written(from, size - 1)).to.equal(undefined);
      }),
    );
  });

  it('takes large bodies as they are, and joins small ones', () => {
    const writer = new ClientStatusWriter(Number.POSITIVE_INFINITY);
    const bodies = [16_384, 100, 40_000, 16_383, 200_000].map((size) => new Uint8Array(size));
    for (const [at, one] of bodies.entries()) writer.entry({ typeUrl: 't', name: `${at}`, body: one });
    writer.client({ nodeId: 'one', cluster: '', scope: '' });
    const pieces = writer.take();
    expect(bodies.map((one) => pieces.includes(one))).to.deep.equal([true, false, true, false, true]);
    expect(pieces.length).to.equal(7);
  });

  it('forgets the entries of a client that has left', () => {
    const writer = new ClientStatusWriter(1000);
    writer.entry({ typeUrl: 't', name: 'gone' });
    writer.drop();
    writer.client({ nodeId: 'here', cluster: '', scope: '1' });
    const [config] = fromBinary(ClientStatusResponseSchema, Buffer.concat(writer.take())).config;
    expect([config?.node?.id, config?.genericXdsConfigs]).to.deep.equal(['here', []]);
  });
});
