import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { endpointsOwed } from '../../src/downstream/clusters.ts';
import { resourceName, revision, serial } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import type { Variant } from '../../src/model/resource.ts';
import { itemId } from '../../src/model/selection.ts';
import type { Response } from '../../src/model/subscription.ts';
import { type } from '../support/lab.ts';

const url = type('cds');
const text = (tag: number, value: string): Buffer =>
  Buffer.concat([Buffer.from([tag, value.length]), Buffer.from(value)]);
const nested = (tag: number, value: Buffer): Buffer =>
  Buffer.concat([Buffer.from([tag, value.length]), value]);
const anyOf = (value: Buffer): Uint8Array => toBinary(AnySchema, create(AnySchema, { typeUrl: url, value }));

function variant(name: string, bytes: Uint8Array | undefined): Variant {
  return {
    type: url,
    name: resourceName(name),
    constraints: UNCONSTRAINED,
    version: '',
    tag: '',
    payload: bytes === undefined ? undefined : { bytes, hash: '' },
    aliases: [],
    ttl: undefined,
    doNotCache: false,
    metadata: undefined,
    responseVersion: '',
    upstream: '',
    since: 0,
    revision: revision(1),
  };
}

function response(...changed: Variant[]): Response {
  return {
    serial: serial(1),
    nonce: '1',
    bytes: Buffer.alloc(0),
    version: '',
    resources: changed.length,
    changed,
    receivedAt: undefined,
  };
}

const name = text(0x0a, 'cluster');
const rows: readonly (readonly [string, Uint8Array | undefined, string])[] = [
  ['a service_name', anyOf(Buffer.concat([name, nested(0x1a, text(0x12, 'service'))])), 'service'],
  [
    'an eds_config before it',
    anyOf(nested(0x1a, Buffer.concat([nested(0x0a, text(0x22, 'ads')), text(0x12, 'service')]))),
    'service',
  ],
  ['no eds_cluster_config', anyOf(name), 'cluster'],
  ['no service_name in it', anyOf(Buffer.concat([name, nested(0x1a, text(0x0a, ''))])), 'cluster'],
  ['an empty service_name', anyOf(Buffer.concat([name, nested(0x1a, text(0x12, ''))])), 'cluster'],
  ['no name', anyOf(Buffer.alloc(0)), 'resource'],
  ['a body that is no Cluster', anyOf(Buffer.from([0x1a, 0xff, 0x01])), 'resource'],
  ['bytes that are no Any', Buffer.from([0xff, 0xff]), 'resource'],
  ['no body', undefined, 'resource'],
];

describe('endpointsOwed (§10.1)', () => {
  for (const [what, bytes, owed] of rows) {
    it(`a cluster with ${what}: EDS of ${owed}`, () => {
      const items = endpointsOwed(response(variant('resource', bytes)))?.items;
      expect([...(items ?? [])]).to.deep.equal([itemId(false, NO_PARAMETERS, owed)]);
    });
  }

  it('a response in which no cluster is new owes nothing', () => {
    expect(endpointsOwed(response())).to.equal(undefined);
  });

  it('is the same object for all who get the response, so that they share frames', () => {
    const sent = response(variant('a', undefined));
    expect(endpointsOwed(sent)).to.equal(endpointsOwed(sent));
  });
});
