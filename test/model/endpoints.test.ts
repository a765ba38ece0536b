import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { assignmentType, endpointsIn } from '../../src/model/cluster.ts';
import { typeInfo } from '../../src/model/types.ts';
import { jsonToBytes, messageName } from '../../src/wire/registry.ts';

const encoded = (value: Uint8Array): Uint8Array =>
  toBinary(AnySchema, create(AnySchema, { typeUrl: assignmentType, value }));

describe('how many endpoints an assignment has', () => {
  for (const [what, assignment, count] of [
    ['nothing but a name', {}, 0],
    ['a policy', { policy: { overprovisioning_factor: 140 } }, 0],
    ['a locality without any', { endpoints: [{ locality: { region: 'r' }, priority: 1 }] }, 0],
    ['endpoints in two localities', { endpoints: [{ lb_endpoints: [{}] }, { lb_endpoints: [{}, {}] }] }, 3],
    [
      'endpoints of a collection (LEDS)',
      { endpoints: [{ leds_cluster_locality_config: { leds_collection_name: 'xdstp://a/b/*' } }] },
      Number.POSITIVE_INFINITY,
    ],
  ] as const) {
    it(`${what}: ${count}`, () => {
      const bytes = jsonToBytes(messageName(assignmentType), { cluster_name: 'shop', ...assignment });
      if (!bytes.ok) throw new Error(bytes.error[0]?.message);
      expect(endpointsIn(encoded(bytes.value))).to.equal(count);
    });
  }

  it('as many as are asked for', () => {
    const bytes = jsonToBytes(messageName(assignmentType), { endpoints: [{ lb_endpoints: [{}, {}, {}] }] });
    if (!bytes.ok) throw new Error(bytes.error[0]?.message);
    expect(endpointsIn(encoded(bytes.value), 2)).to.equal(2);
  });

  it('what is malformed counts as one that has some: it is for clients to reject', () => {
    expect(endpointsIn(encoded(new Uint8Array([0x12, 5, 1])))).to.equal(Number.POSITIVE_INFINITY);
    expect(endpointsIn(new Uint8Array())).to.equal(0);
  });

  it('eds is the type', () => {
    expect(typeInfo(assignmentType).short).to.equal('eds');
  });
});
