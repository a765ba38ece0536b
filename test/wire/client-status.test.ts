import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import fc from 'fast-check';
import { UpdateFailureStateSchema } from '../../src/gen/envoy/admin/v3/config_dump_shared_pb.ts';
import {
  ClientConfig_GenericXdsConfigSchema,
  ClientStatusResponseSchema,
  ConfigStatus,
} from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { ClientStatusWriter, encodedResponse, sizeOf } from '../../src/wire/client-status.ts';

type FcInfer<A> = A extends fc.Arbitrary<infer T> ? T : never;

const milliseconds = fc.nat(2 ** 31).map((half) => half * 2000 + 7);
const text = fc.string({ unit: 'grapheme', maxLength: 200 });
const body = fc
  .oneof(
    fc.uint8Array({ maxLength: 300 }),
    fc.nat(70_000).map((length) => new Uint8Array(length)),
  )
  .map((value) => toBinary(AnySchema, create(AnySchema, { typeUrl: 'type.googleapis.com/x', value })));
const entry = fc
  .record(
    {
      typeUrl: text,
      name: text,
      versionInfo: text,
      xdsConfig: body.map((any) => fromBinary(AnySchema, any)),
      lastUpdated: milliseconds.map(timestampFromMs),
      configStatus: fc.constantFrom(ConfigStatus.SYNCED, ConfigStatus.STALE),
      errorState: text.map((details) => create(UpdateFailureStateSchema, { details })),
    },
    { requiredKeys: ['typeUrl', 'name'] },
  )
  .map((one) => create(ClientConfig_GenericXdsConfigSchema, one));
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
      genericXdsConfigs: entries,
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
    const entries = Array.from({ length: 400 }, (_, index) => {
      const value = new Uint8Array((index * 37) % 20_000).fill(index);
      return create(ClientConfig_GenericXdsConfigSchema, {
        typeUrl: 'type.googleapis.com/x',
        name: `name-${index}`,
        xdsConfig: { value },
      });
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

  it('forgets the entries of a client that has left', () => {
    const writer = new ClientStatusWriter(1000);
    writer.entry(create(ClientConfig_GenericXdsConfigSchema, { typeUrl: 't', name: 'gone' }));
    writer.drop();
    writer.client({ nodeId: 'here', cluster: '', scope: '1' });
    const [config] = fromBinary(ClientStatusResponseSchema, Buffer.concat(writer.take())).config;
    expect([config?.node?.id, config?.genericXdsConfigs]).to.deep.equal(['here', []]);
  });
});
