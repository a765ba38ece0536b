import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { consequencesOf } from '../../src/downstream/send-order.ts';
import { resourceName, revision, serial } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import type { Variant } from '../../src/model/resource.ts';
import { itemId } from '../../src/model/selection.ts';
import type { Response } from '../../src/model/subscription.ts';
import { type } from '../support/in-memory-relay.ts';

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
    deltaVersion: '',
    payload: bytes === undefined ? undefined : { bytes, hash: '' },
    aliases: [],
    ttl: undefined,
    doNotCache: false,
    metadata: undefined,
    responseVersion: '',
    upstream: '',
    cachedSince: 0,
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
    changed: changed.map((now) => ({ now, before: undefined })),
    removed: [],
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

describe('what a change of clusters calls for', () => {
  for (const [what, bytes, resent] of rows) {
    it(`§10.1 a cluster with ${what}: EDS of ${resent}`, () => {
      const { edsToResend } = consequencesOf(response(variant('resource', bytes)));
      expect([...edsToResend]).to.deep.equal([itemId(false, NO_PARAMETERS, resent)]);
    });
  }

  const kinds: readonly (readonly [string, Buffer, boolean])[] = [
    ['no type', Buffer.alloc(0), false],
    ['type STATIC', Buffer.from([0x10, 0]), false],
    ['type STRICT_DNS', Buffer.from([0x10, 1]), true],
    ['type LOGICAL_DNS', Buffer.from([0x10, 2]), true],
    ['type EDS', Buffer.from([0x10, 3]), true],
    ['type ORIGINAL_DST', Buffer.from([0x10, 4]), false],
    ['a custom cluster_type', Buffer.concat([Buffer.from([0xb2, 2, 3]), text(0x0a, 'x')]), true],
    ['health_checks', nested(0x42, Buffer.alloc(0)), true],
  ];
  for (const [what, bytes, warming] of kinds) {
    it(`a cluster with ${what} ${warming ? 'has to warm' : 'can be used at once'}`, () => {
      const changed = variant('a', anyOf(Buffer.concat([name, bytes])));
      expect(consequencesOf(response(variant('b', undefined), changed)).warming).to.equal(warming);
    });
  }

  it('is the same object for all who get the response, so that they share frames', () => {
    const sent = response(variant('a', undefined));
    expect(consequencesOf(sent).edsToResend).to.equal(consequencesOf(sent).edsToResend);
  });
});
