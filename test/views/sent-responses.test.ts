import { expect } from 'chai';
import { resourceName, revision, serial } from '../../src/model/brand.ts';
import { isVariant, type Value } from '../../src/model/catalog.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import type { Variant } from '../../src/model/resource.ts';
import { type SentItems, SentResponses } from '../../src/views/sent-responses.ts';
import type { RetainedResource, SentResponse } from '../../src/views/shared-responses.ts';
import { type } from '../support/in-memory-relay.ts';
import { workOf } from '../support/work.ts';

/** A cursor that is always at the head: what was sent last of each item. */
class Client implements SentItems {
  /** How often it was asked. */
  looked = 0;
  readonly responses: SentResponses;
  readonly #items = new Map<string, Value>();
  readonly #complete: boolean;

  constructor(kind: string) {
    this.responses = new SentResponses(this, kind === 'delta');
    this.#complete = kind === 'full';
  }

  sentOf(id: string): Value | undefined {
    this.looked++;
    return this.#items.get(id);
  }

  get hasSomething(): boolean {
    return this.#items.values().some(isVariant);
  }

  /** `a1`: the resource a with content 1; `-a`: its removal. */
  send(number: number, changes: readonly string[]): void {
    const additions: RetainedResource[] = [];
    const removals: RetainedResource[] = [];
    for (const change of changes) {
      const name = change.replace(/[-\d]/g, '');
      const retained = { item: itemOf(name), variant: variant(name, change.replace(/\D/g, '')) };
      (change.startsWith('-') ? removals : additions).push(retained);
      this.#items.set(name, change.startsWith('-') ? 'absent' : retained.variant);
    }
    const header = {
      serial: serial(number),
      nonce: String(number),
      version: `v${number}`,
      complete: this.#complete,
      resources: additions.length,
      receivedAt: undefined,
    };
    const response: SentResponse = { header, additions, removals };
    this.responses.sent(response);
  }

  answer(nonce: string, isNack: boolean): string {
    const kind = this.responses.classify(nonce, isNack);
    if (kind !== 'first' && kind !== 'change') {
      const error = isNack ? { code: 13, message: `no ${nonce}`, at: 0 } : undefined;
      this.responses.answered(nonce, error);
    }
    return kind;
  }

  forget(name: string): void {
    this.#items.delete(name);
  }

  /** `SYNCED a` and so on; what is rejected, with the version of the response. */
  get told(): string {
    const stateOf = this.responses.itemStates();
    const items = [...this.#items].map(([id, value]) => {
      const { state, rejection } = stateOf(id, value);
      return `${id}:${state}${rejection === undefined ? '' : `(${rejection.version})`}`;
    });
    return [this.responses.state, ...items.toSorted()].join(' ');
  }
}

const variant = (name: string, content: string): Variant => ({
  type: type('cds'),
  name: resourceName(name),
  constraints: UNCONSTRAINED,
  version: content,
  deltaVersion: `${content}@${content}`,
  payload: undefined,
  aliases: [],
  ttl: undefined,
  doNotCache: false,
  metadata: undefined,
  responseVersion: content,
  upstream: '',
  cachedSince: 0,
  revision: revision(0),
});

const itemOf = (name: string): RetainedResource['item'] => ({
  id: name,
  name: resourceName(name),
  requestedName: name,
  locator: false,
  parameters: NO_PARAMETERS,
  named: true,
  last: { revision: 0, value: 'unknown', older: undefined },
});

/** Runs `1{a1,b1}` (a response), `+1` (its ACK), `!1` (its NACK), `~a` (a is unsubscribed); the kinds of the answers. */
function run(client: Client, conversation: string): string[] {
  const kinds: string[] = [];
  let sent = 0;
  for (const word of conversation.split(' ')) {
    const response = /^(\d+)\{(.*)\}$/.exec(word);
    if (response !== null) {
      sent = Number(response[1]);
      client.send(sent, (response[2] ?? '').split(',').filter(Boolean));
    } else if (word.startsWith('~')) client.forget(word.slice(1));
    else kinds.push(client.answer(word.slice(1), word.startsWith('!')));
  }
  return kinds;
}

type Row = readonly [what: string, kind: 'delta' | 'full' | 'partial', conversation: string, told: string];

const rows: readonly Row[] = [
  ['sent, not acknowledged', 'delta', '1{a1}', 'STALE a:STALE'],
  ['acknowledged', 'delta', '1{a1} +1', 'SYNCED a:SYNCED'],
  ['rejected', 'delta', '1{a1} !1', 'ERROR a:ERROR(v1)'],
  ['only what the response has is outstanding', 'delta', '1{a1,b1} +1 2{b2}', 'STALE a:SYNCED b:STALE'],
  // A NACK of a resource outlives the next ACK of the type.
  ['a NACK outlives the ACK of another resource', 'delta', '1{a1} !1 2{b1} +2', 'ERROR a:ERROR(v1) b:SYNCED'],
  ['also in SotW, where responses are partial', 'partial', '1{a1} !1 2{b1} +2', 'ERROR a:ERROR(v1) b:SYNCED'],
  ['and while that is outstanding', 'delta', '1{a1} !1 2{b1}', 'ERROR a:ERROR(v1) b:STALE'],
  ['each of the rejected ones apart', 'delta', '1{a1,b1} !1 2{a1} !2 3{b1} +3', 'ERROR a:ERROR(v2) b:SYNCED'],
  ['sent again and not answered: rejected', 'delta', '1{a1} !1 2{a1}', 'ERROR a:ERROR(v1)'],
  ['sent again and accepted', 'delta', '1{a1} !1 2{a1} +2', 'SYNCED a:SYNCED'],
  ['sent with another content', 'delta', '1{a1} !1 2{a2}', 'STALE a:STALE'],
  ['removed', 'delta', '1{a1} !1 2{-a} +2', 'SYNCED a:NOT_SENT'],
  ['unsubscribed', 'delta', '1{a1} !1 ~a', 'SYNCED'],
  ['a removal is rejected', 'delta', '1{a1} +1 2{-a} !2 3{b1} +3', 'ERROR a:ERROR(v2) b:SYNCED'],
  ['a removal is outstanding', 'delta', '1{a1} +1 2{-a}', 'STALE a:STALE'],
  [
    'a rejected removal, and the resource comes back',
    'delta',
    '1{a1} +1 2{-a} !2 3{a2} +3',
    'SYNCED a:SYNCED',
  ],
  ['nothing in it: the response is rejected', 'delta', '1{} !1', 'ERROR'],
  ['until the next is accepted', 'delta', '1{} !1 2{a1} +2', 'SYNCED a:SYNCED'],
  ['accepted, then rejected with the same nonce', 'delta', '1{a1} +1 !1', 'ERROR a:SYNCED'],
  // Delta: nonces of earlier outstanding responses are valid.
  ['a late NACK', 'delta', '1{a1} 2{b1} +2 !1', 'ERROR a:ERROR(v1) b:SYNCED'],
  ['before the ACK of the newer', 'delta', '1{a1} 2{b1} !1 +2', 'ERROR a:ERROR(v1) b:SYNCED'],
  ['a late NACK of what was replaced', 'delta', '1{a1} 2{a2} +2 !1', 'SYNCED a:SYNCED'],
  ['a late NACK of which half was replaced', 'delta', '1{a1,b1} 2{a2} +2 !1', 'ERROR a:SYNCED b:ERROR(v1)'],
  ['a late ACK', 'delta', '1{a1} 2{b1} +2 +1', 'SYNCED a:SYNCED b:SYNCED'],
  ['a late ACK is still to come', 'delta', '1{a1} 2{b1} +2', 'STALE a:STALE b:SYNCED'],
  ['a late ACK of what was rejected since', 'delta', '1{a1} 2{a2} !2 +1', 'ERROR a:ERROR(v2)'],
  // SotW with complete responses: any resource may be at fault.
  ['a NACK is about the whole', 'full', '1{a1,b1} +1 2{b2} !2', 'ERROR a:ERROR(v2) b:ERROR(v2)'],
  ['the whole is outstanding', 'full', '1{a1,b1} +1 2{b2}', 'STALE a:STALE b:STALE'],
  ['the next whole', 'full', '1{a1,b1} !1 2{b2}', 'STALE a:STALE b:STALE'],
  ['and its ACK', 'full', '1{a1,b1} !1 2{b2} +2', 'SYNCED a:SYNCED b:SYNCED'],
  ['a stale NACK', 'full', '1{a1} 2{a2} !1', 'STALE a:STALE'],
  ['an ACK takes a NACK back', 'full', '1{a1} !1 +1', 'SYNCED a:SYNCED'],
  // SotW with partial responses.
  ['all in the response', 'partial', '1{a1} +1 2{b1,c1} !2', 'ERROR a:SYNCED b:ERROR(v2) c:ERROR(v2)'],
  [
    'a stale ACK tells of its resources',
    'partial',
    '1{a1,b1} !1 2{a1} 3{b1} +2 !3',
    'ERROR a:SYNCED b:ERROR(v3)',
  ],
  ['a stale NACK too', 'partial', '1{a1,b1} !1 2{a1} 3{b1} !2 +3', 'ERROR a:ERROR(v2) b:SYNCED'],
  ['what was not answered by then will not be', 'partial', '1{a1} 2{b1} +2', 'SYNCED a:SYNCED b:SYNCED'],
];

/** A conversation as above, with what each answer is. */
const nonces: readonly (readonly [string, string, string])[] = [
  ['+ +leaked !leaked', 'first first first', 'before anything was sent (§3.2)'],
  ['1{} +1 +1', 'ack ack', 'the last nonce sent (§3.3)'],
  ['1{} +0', 'stale', 'any other (§3.3)'],
  ['1{} +', 'stale', 'no nonce, when a response is on its way'],
  ['1{} !1', 'nack', 'error_detail present (§3.4)'],
  ['1{} !0', 'stale', 'a stale nonce is no NACK'],
  ['1{} +1 2{} +1 +2', 'ack stale ack', 'an answer that a newer response has overtaken'],
  ['1{} +1 2{} !2 +1 +1', 'ack nack change change', 'the accepted one after a NACK (§3.3)'],
  ['1{} +1 2{} !2 !2 +1', 'ack nack nack change', 'after two of them'],
  ['1{} +1 2{} !2 +2 +1', 'ack nack ack stale', 'a change with the rejected nonce ends that'],
  ['1{} +1 2{} !2 3{} +1', 'ack nack stale', 'and so does a new response'],
  ['1{} !1 +', 'nack change', 'nothing accepted yet: no nonce'],
  ['1{} !1 +0', 'nack stale', 'nothing accepted yet, and another nonce'],
  ['1{} +1 2{} !2 +', 'ack nack stale', 'no nonce, when one was accepted'],
  ['1{a1} +1 2{b1} 3{c1} +2 !3 +2', 'ack stale nack change', 'accepted when a newer one was on its way'],
  ['1{a1} +1 2{b1} 3{c1} +2 !3 +1', 'ack stale nack stale', 'and no longer the one before it'],
  ['1{a1} +1 2{b1} 3{c1} !2 !3 +1', 'ack stale nack change', 'a stale NACK accepts nothing'],
  ['1{a1} 2{b1} +2 +1 3{c1} !3 +2', 'ack stale nack change', 'nor does an ACK of an older one'],
];

describe('SentResponses', () => {
  for (const [what, kind, conversation, told] of rows) {
    it(`${kind} ${conversation}: ${what}`, () => {
      const client = new Client(kind);
      run(client, conversation);
      expect(client.told).to.equal(told);
    });
  }

  for (const [conversation, kinds, what] of nonces) {
    it(`SotW ${conversation}: ${what}`, () => {
      for (const kind of ['full', 'partial'])
        expect(run(new Client(kind), conversation).join(' '), kind).to.equal(kinds);
    });
  }

  it('SotW: one of any number of unanswered nonces may be the accepted one (§3.3)', () => {
    for (const [accepted, kind] of [
      [1, 'change'],
      [99, 'change'],
      [101, 'stale'],
    ] as const) {
      const client = new Client('full');
      for (let round = 1; round <= 100; round++) client.send(round, ['a1']);
      expect(run(client, `+${accepted} !100 +${accepted}`)).to.deep.equal(['stale', 'nack', kind]);
    }
  });

  it('a rejection has the version of its response, and a name and its version only if the response had one resource', () => {
    const client = new Client('delta');
    run(client, '1{a1} 2{b1,c1} 3{d1} !2 !1');
    const found = [...client.responses.rejections].map(
      ({ version, name, variant: about }) => `${version} ${name} ${about?.deltaVersion ?? ''}`,
    );
    expect(found.toSorted()).to.deep.equal(['v1 a 1@1', 'v2  ']);
    expect(client.responses.lastNack).to.include({ message: 'no 1', version: 'v1' });
  });

  it('rejections of what was unsubscribed do not pile up', () => {
    const client = new Client('delta');
    for (let round = 1; round <= 1000; round++)
      run(client, `${round}{${'a'.repeat(round)}1} !${round} ~${'a'.repeat(round)}`);
    client.looked = 0;
    expect(client.responses.rejections.size).to.equal(0);
    expect(client.looked).to.be.below(10);
  });

  it('of thousands of resources that a client has rejected, the first says that it has', () => {
    const client = new Client('delta');
    client.send(
      1,
      Array.from({ length: 1000 }, (_, at) => `${'a'.repeat(at + 1)}1`),
    );
    client.answer('1', true);
    client.looked = 0;
    expect(client.responses.state).to.equal('ERROR');
    expect(client.looked).to.be.below(10);
  });

  it('what a client never answers does not pile up once it is unsubscribed', () => {
    const client = new Client('delta');
    run(client, '1{kept1}');
    const name = (round: number): string => 'a'.repeat(round);
    for (let round = 50; round <= 2000; round++)
      run(client, `${round}{${name(round)}1} ~${name(round - 40)}`);
    expect(workOf(Map.prototype, ['set'], () => client.responses.itemStates())).to.be.below(200);
    expect(client.told).to.contain('kept:STALE');
  });

  it('a rejection says what its response changed: a few names, how many, and whether all were removed', () => {
    const rejected = (kind: string, conversation: string) => {
      const client = new Client(kind);
      run(client, conversation);
      const [rejection] = client.responses.rejections;
      return [rejection?.name, rejection?.changes];
    };
    expect(rejected('delta', '1{a1} +1 2{-a} !2')).to.deep.equal([
      'a',
      { names: ['a'], total: 1, removal: true },
    ]);
    expect(rejected('delta', '1{a1,b1} +1 2{-a,-b} !2')).to.deep.equal([
      '',
      { names: ['a', 'b'], total: 2, removal: true },
    ]);
    expect(rejected('delta', '1{a1} +1 2{-a,b1,c1,d1,e1,f1} !2')).to.deep.equal([
      '',
      { names: ['b', 'c', 'd', 'e', 'f'], total: 6, removal: false },
    ]);
  });

  it('after more than 32 unanswered responses nothing is acknowledged until the others are answered', () => {
    const client = new Client('delta');
    run(client, '1{a1,b1} +1');
    for (let round = 2; round <= 50; round++) client.send(round, [round === 2 ? 'b2' : 'c1']);
    expect(client.told).to.equal('STALE a:STALE b:STALE c:STALE');
    run(client, '51{b3}');
    expect(client.told).to.equal('STALE a:STALE b:STALE c:STALE');
    for (let round = 20; round <= 51; round++) client.answer(String(round), false);
    expect(client.told).to.equal('SYNCED a:SYNCED b:SYNCED c:SYNCED');
  });

  it('the same where the newest is answered first', () => {
    const client = new Client('delta');
    run(client, '1{a1}');
    for (let round = 2; round <= 33; round++) client.send(round, ['b1']);
    for (let round = 33; round >= 2; round--) client.answer(String(round), false);
    expect(client.told).to.equal('SYNCED a:SYNCED b:SYNCED');
  });

  it('a client that never answers is forgotten response by response', () => {
    const client = new Client('delta');
    for (let round = 1; round <= 100; round++) client.send(round, [`${'a'.repeat(round)}1`]);
    expect(client.responses.isOutstanding('1')).to.equal(false);
    expect(client.responses.isOutstanding('99')).to.equal(true);
  });
});
