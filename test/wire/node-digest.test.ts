import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import { nodeDigest } from '../../src/wire/requests.ts';

const bytesOf = (id: string, env: string, extension: string, features: string[] = []): Buffer =>
  Buffer.from(
    toBinary(
      NodeSchema,
      create(NodeSchema, {
        id,
        cluster: 'fleet',
        metadata: { env },
        extensions: Array.from({ length: 300 }, (_, index) => ({
          name: `${extension}.${index}`,
          category: 'filters',
        })),
        clientFeatures: features,
      }),
    ),
  );

describe('node digest (protocol §3.1)', () => {
  const same = nodeDigest(bytesOf('a', 'prod', 'x'));

  it('is equal for equal nodes', () => expect(nodeDigest(bytesOf('a', 'prod', 'x'))).to.equal(same));
  it('sees an id of the same length', () => expect(nodeDigest(bytesOf('b', 'prod', 'x'))).to.not.equal(same));
  it('sees metadata of the same length', () =>
    expect(nodeDigest(bytesOf('a', 'test', 'x'))).to.not.equal(same));
  it('sees what comes behind the extensions', () => {
    expect(nodeDigest(bytesOf('a', 'prod', 'x', ['f']))).to.not.equal(
      nodeDigest(bytesOf('a', 'prod', 'x', ['g'])),
    );
  });
  it('does not look at extensions', () => expect(nodeDigest(bytesOf('a', 'prod', 'y'))).to.equal(same));
  it('takes any bytes', () => {
    fc.assert(fc.property(fc.uint8Array(), (bytes) => Number.isInteger(nodeDigest(Buffer.from(bytes)))));
  });
});
