import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { assignmentType, hasEndpoints } from '../../src/model/endpoints.ts';
import { typeInfo } from '../../src/model/types.ts';
import { jsonToBytes, messageName } from '../../src/wire/registry.ts';

const encoded = (value: Uint8Array): Uint8Array =>
  toBinary(AnySchema, create(AnySchema, { typeUrl: assignmentType, value }));

describe('whether an assignment has endpoints', () => {
  for (const [what, assignment, has] of [
    ['nothing but a name', {}, false],
    ['a policy', { policy: { overprovisioning_factor: 140 } }, false],
    ['a locality without any', { endpoints: [{ locality: { region: 'r' }, priority: 1 }] }, false],
    ['an endpoint in the second locality', { endpoints: [{}, { lb_endpoints: [{}] }] }, true],
    [
      'endpoints of a collection (LEDS)',
      { endpoints: [{ leds_cluster_locality_config: { leds_collection_name: 'xdstp://a/b/*' } }] },
      true,
    ],
  ] as const) {
    it(`${what}: ${has ? 'yes' : 'no'}`, () => {
      const bytes = jsonToBytes(messageName(assignmentType), { cluster_name: 'shop', ...assignment });
      if (!bytes.ok) throw new Error(bytes.error.message);
      expect(hasEndpoints(encoded(bytes.value))).to.equal(has);
    });
  }

  it('what is malformed counts as one that has some: it is for clients to reject', () => {
    expect(hasEndpoints(encoded(new Uint8Array([0x12, 5, 1])))).to.equal(true);
    expect(hasEndpoints(new Uint8Array())).to.equal(false);
  });

  it('eds is the type', () => {
    expect(typeInfo(assignmentType).short).to.equal('eds');
  });
});
