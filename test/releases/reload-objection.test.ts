import { expect } from 'chai';
import { parametersObjection, reloadObjection } from '../../src/releases/seams.ts';
import { type } from '../support/in-memory-relay.ts';

const [cds, lds, eds] = [type('cds'), type('lds'), type('eds')];
const shop = { key: 'env', value: 'shop' };
const wave = { path: 'rollout.canary', elects: true, bakeMs: undefined };
const before = { waves: [{ ...wave, percent: 5, match: [shop] }], types: [cds, lds] };
const held = { reason: 'cds a: no', names: [{ type: cds }] };

interface Row {
  readonly rule: string;
  readonly after: typeof before | undefined;
  /** Undefined: the reload is accepted. */
  readonly refused: RegExp | undefined;
}

const rows: readonly Row[] = [
  { rule: 'nothing changes', after: before, refused: undefined },
  {
    rule: 'no rollout any more',
    after: undefined,
    refused:
      /^rollout: it cannot be taken out while a change is held \(cds: 1 name; cds a: no\): run .*release/,
  },
  {
    rule: 'the type of what is held is gated no more',
    after: { ...before, types: [lds] },
    refused: /^rollout.types: cds cannot be taken out/,
  },
  { rule: 'another type is gated no more', after: { ...before, types: [cds] }, refused: undefined },
  { rule: 'one more type is gated', after: { ...before, types: [cds, lds, eds] }, refused: undefined },
  {
    rule: 'more percent',
    after: { ...before, waves: [{ ...wave, percent: 6, match: [shop] }] },
    refused: /^rollout.canary.percent: it cannot grow \(5 to 6\)/,
  },
  {
    rule: 'less percent, and nobody by match',
    after: { ...before, waves: [{ ...wave, percent: 0, match: [] }] },
    refused: undefined,
  },
  {
    rule: 'one more match',
    after: { ...before, waves: [{ ...wave, percent: 5, match: [shop, { key: 'env', value: 'test' }] }] },
    refused: /^rollout.canary.match: env: test cannot be added/,
  },
];

describe('a reload while a change is held', () => {
  for (const { rule, after, refused } of rows) {
    it(`${rule}: ${refused === undefined ? 'accepted' : 'refused'}`, () => {
      const objection = reloadObjection(held.reason, held.names, before, after);
      if (refused === undefined) expect(objection).to.equal(undefined);
      else expect(objection).to.match(refused);
    });
  }
});

describe('a reload while canaries have not decided yet', () => {
  it('takes nothing away from what waits: everybody would get it', () => {
    const path = /^rollout: it cannot be taken out while a change waits for canaries \(cds: 1 name\): wait/;
    expect(reloadObjection(undefined, held.names, before, undefined)).to.match(path);
    const types = /^rollout.types: cds cannot be taken out while a change waits for canaries/;
    expect(reloadObjection(undefined, held.names, before, { ...before, types: [lds] })).to.match(types);
  });

  it('may add canaries, and take other types away', () => {
    const more = {
      ...before,
      waves: [{ ...wave, percent: 50, match: [shop, { key: 'env', value: 'test' }] }],
    };
    expect(reloadObjection(undefined, held.names, before, more)).to.equal(undefined);
    expect(reloadObjection(undefined, held.names, before, { ...before, types: [cds] })).to.equal(undefined);
  });
});

describe('a reload with other parameters', () => {
  const waiting = (masked?: 'discarded' | 'frozen' | 'rolledBack' | 'queued') => ({ type: cds, masked });
  const rows: readonly (readonly [
    name: string,
    pending: Parameters<typeof parametersObjection>[0],
    RegExp,
  ])[] = [
    [
      'a change waits',
      [waiting()],
      /^parameters: they cannot change while a change waits \(cds: 1 name\): wait until/,
    ],
    [
      'a change is queued',
      [waiting('queued')],
      /while a change waits \(cds: 1 name\): .*"distributary release"/,
    ],
    [
      'something is discarded',
      [waiting(), waiting('discarded')],
      /a change is discarded .*control plane sends/,
    ],
    [
      'something is frozen',
      [waiting('discarded'), waiting('frozen')],
      /a freeze holds .*"distributary unfreeze"/,
    ],
    ['a rollback holds', [waiting('rolledBack'), waiting('frozen')], /a rollback holds \(cds: 1 name\): run/],
  ];
  for (const [name, pending, refused] of rows)
    it(`${name}: refused`, () => {
      expect(parametersObjection(pending)).to.match(refused);
    });

  it('nothing waits: accepted', () => {
    expect(parametersObjection([])).to.equal(undefined);
  });
});
