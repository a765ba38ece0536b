import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import { DeltaDiscoveryResponseSchema } from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { UpstreamSubscription } from '../../../src/upstream/ads/upstream-subscriptions.ts';
import { workOf } from '../../support/work.ts';
import { deltaResponse, parseItem, sotwResponse, typeOf } from './responses.ts';
import { Conversation } from './transcript.ts';

/** The lines that a conversation ends with. */
function last(lines: readonly string[], conversation = new Conversation('delta', [], '')): string[] {
  let answer: string[] = [];
  for (const line of lines) answer = conversation.say(line);
  return answer;
}

/** How many entries of sets are read while something runs. */
function entriesRead(run: () => void): number {
  let read = 0;
  const values = Set.prototype[Symbol.iterator];
  const counted = function* <T>(this: Set<T>): SetIterator<T> {
    for (const one of { [Symbol.iterator]: () => Reflect.apply(values, this, []) as SetIterator<T> }) {
      read++;
      yield one;
    }
  };
  Object.assign(Set.prototype, { values: counted, [Symbol.iterator]: counted });
  run();
  Object.assign(Set.prototype, { values, [Symbol.iterator]: values });
  return read;
}

const sotw = (): Conversation => new Conversation('sotw', [], '');

describe('a session machine', () => {
  describe('refuses, naming the resource, and applies nothing', () => {
    const bad: readonly (readonly [string, string, RegExp])[] = [
      ['an Any of another type', 'a:1#lds', /"a" is of type .*Listener/],
      ['a duplicate', 'a:1 a:1', /"a" comes twice/],
      ['a duplicate by its constraints', 'a{e=1&f=2}:1 a{f=2&e=1}:1', /"a" comes twice/],
      ['a constraint that says nothing', 'a{?}:1', /"a": constraints: .*"k"/],
      ['an xdstp name of another type', 'xdstp://x/wrong/a:1', /"xdstp:\/\/x\/wrong\/a"/],
      [
        'an xdstp name with a duplicate key',
        'xdstp://x/envoy.config.cluster.v3.Cluster/a?k=1&k=2:1',
        /"k" is given twice/,
      ],
    ];
    for (const [what, items, reason] of bad) {
      for (const protocol of ['sotw', 'delta'] as const) {
        it(`${protocol}: ${what}`, () => {
          const conversation = new Conversation(protocol, [], '');
          last(['subscribe cds *', 'connect', '< cds 1 n1 good:1'], conversation);
          const answer = conversation.say(`< cds 2 n2 good:2 ${items}`);
          expect(answer.filter((line) => line.startsWith('='))).to.deep.equal([]);
          expect(answer.at(-1)).to.match(reason).and.contain('nack n2');
          if (protocol === 'sotw') expect(answer.at(-1)).to.contain('version 1');
        });
      }
    }

    it('delta: one with both of its names, with its place in the response', () => {
      const conversation = new Conversation('delta', [], '');
      last(['subscribe cds *', 'connect'], conversation);
      const response = create(DeltaDiscoveryResponseSchema, {
        typeUrl: typeOf('cds'),
        nonce: 'n1',
        resources: [
          { name: 'a', ttl: {} },
          { name: 'b', resourceName: { name: 'b' } },
        ],
      });
      const answer = conversation.receive(Buffer.from(toBinary(DeltaDiscoveryResponseSchema, response)));
      const reason = 'resource 2 of 2: resource "b" has both name and resource_name';
      expect(answer.at(-1)).to.contain(`nack n1 "${reason}"`);
    });

    it('delta: a removal of what the response has, too', () => {
      const answer = last(['subscribe cds *', 'connect', '< cds 1 n1 a:1 -a']);
      expect(answer.at(-1)).to.match(/nack n1 .*"a" comes twice/);
    });

    it('delta: §5b.8 a body beside two removals of it', () => {
      const answer = last(['subscribe cds *', 'connect', '< cds 1 n1 a:1 -a -a{}']);
      expect(answer.at(-1)).to.match(/nack n1 .*"a" comes twice/);
    });

    it('an xdstp name in two spellings', () => {
      const name = 'xdstp://x/envoy.config.cluster.v3.Cluster/a';
      const answer = last(['subscribe cds *', 'connect', `< cds 1 n1 ${name}?b=1&a=2:1 ${name}?a=2&b=1:1`]);
      expect(answer.at(-1)).to.match(/comes twice/);
    });

    it('§5 remove and add of different constraints of one name is no duplicate', () => {
      const answer = last(['subscribe cds *', 'connect', '< cds 1 n1 a{e=1&v=1}:1 -a{e=1}']);
      expect(answer.at(-1)).to.equal('> cds ack n1');
    });

    for (const twice of ['-a -a', '-a -a{}', '-a{} -a{}', '-a{} -a']) {
      it(`§5b.8 a removal given twice is one removal: ${twice}`, () => {
        const conversation = new Conversation('delta', [], '');
        last(['subscribe cds *', 'connect', '< cds 1 n1 a:1 b:1'], conversation);
        const answer = conversation.say(`< cds 2 n2 ${twice} b:2`);
        expect(answer.filter((line) => line.includes('nack'))).to.deep.equal([]);
        expect(answer.filter((line) => line.startsWith('= cds'))).to.have.length(1);
        expect(answer.at(-1)).to.equal('> cds ack n2');
      });
    }

    it('SotW: a type that was never asked for is not even refused, as that would subscribe to it', () => {
      const answer = last(['subscribe cds *', 'connect', '< lds 1 n1 a:1'], sotw());
      expect(answer).to.have.length(1);
      expect(answer[0]).to.contain('was not asked for');
    });
  });

  it('delta: a type URL of more than 256 bytes is refused, and is no key of anything', () => {
    const long = `example.com/${'x'.repeat(1_000_000)}`;
    const conversation = new Conversation('delta', [], '');
    last(['subscribe cds *', 'connect'], conversation);
    const answer = conversation.say(`< ${long} 1 n1 a:1`);
    expect(answer.join('\n')).to.match(/type_url has 1000012 bytes: at most 256 are accepted/);
    const [logged = ''] = answer;
    expect(logged).to.have.length.below(1000);
  });

  it('a change of subscription after a refusal does not look like an acknowledgement', () => {
    const conversation = sotw();
    last(['subscribe cds a', 'connect', '< cds 1 n1 a:1 a:1', 'subscribe cds b'], conversation);
    expect(conversation.say('flush')[0]).to.match(/^> cds \[a b\] nack n1/);
  });

  it('§5b an acknowledgement repeats the names that were sent, not those to come', () => {
    const conversation = sotw();
    last(['subscribe cds a', 'connect', 'subscribe cds b'], conversation);
    expect(conversation.say('< cds 1 n1 a:1').at(-1)).to.equal('> cds [a] version 1 ack n1');
    expect(conversation.say('flush')).to.deep.equal(['> cds [a b] version 1 ack n1']);
  });

  it('§5b what is subscribed while there is no stream is in its first request', () => {
    expect(last(['subscribe cds a', 'flush', 'subscribe eds e', 'connect'])).to.deep.equal([
      '> cds +[a]',
      '> eds +[e]',
    ]);
  });

  it('§3.10 no version goes along on reconnect: equal versions do not prove equal content', () => {
    const conversation = sotw();
    last(['subscribe cds a', 'connect', '< cds 1 n1 a:1', 'disconnect'], conversation);
    expect(conversation.say('connect')).to.deep.equal(['> cds [a]']);
  });

  it('§3.10 what follows without a response leaves the last version, of an earlier stream too', () => {
    const conversation = sotw();
    last(['subscribe cds a', 'subscribe cds b', 'connect', '< cds 7 n1 a:1', 'disconnect'], conversation);
    last(['connect', 'unsubscribe cds b', 'flush'], conversation);
    expect(conversation.say('unsubscribe cds a')).to.deep.equal(['= cds -a']);
  });

  it('§3.9 SotW EDS: silence is never absence', () => {
    expect(last(['subscribe eds a', 'connect', 'wait 60s'], sotw())).to.deep.equal([]);
  });

  it('§3.9 the time to wait begins anew with each stream', () => {
    const conversation = new Conversation('delta', [], '');
    last(['subscribe eds a', 'connect', 'wait 10s', 'disconnect', 'wait 60s', 'connect'], conversation);
    expect(conversation.say('wait 10s')).to.deep.equal([]);
    expect(conversation.say('wait 5s')).to.deep.equal(['= eds settled [a]']);
  });

  it('§3.9 what is held is not removed by a stream that is silent altogether', () => {
    const conversation = new Conversation('delta', [], '');
    last(['subscribe eds a', 'connect', '< eds 1 n1 a:1@1', 'disconnect', 'connect elsewhere'], conversation);
    expect(conversation.say('wait 15s')).to.deep.equal([]);
  });

  it('§3.9 a stream that was silent altogether and then answers has its whole time for the other names', () => {
    const conversation = new Conversation('delta', [], '');
    last(['subscribe eds a', 'subscribe eds b', 'connect', '< eds 1 n1 a:1@1 b:1@1'], conversation);
    last(['disconnect', 'connect elsewhere', 'wait 20s', '< eds 1 n1 b:1@1'], conversation);
    expect(conversation.say('wait 14s')).to.deep.equal([]);
    expect(conversation.say('wait 1s')).to.deep.equal(['= eds version 1 -a']);
  });

  it('§3.9 what a new endpoint does not deliver is removed when its time is up', () => {
    const conversation = new Conversation('delta', [], '');
    last(['subscribe eds a', 'subscribe eds b', 'connect', '< eds 1 n1 a:1@1 b:1@1'], conversation);
    last(['disconnect', 'connect elsewhere', '< eds 1 n1 b:1@1'], conversation);
    expect(conversation.say('wait 15s')).to.deep.equal(['= eds version 1 -a']);
  });

  it('§3.9 a wildcard that is not answered is reported, and stays unknown', () => {
    expect(last(['subscribe cds *', 'connect', 'wait 15s'])).to.deep.equal(['* overdue']);
  });

  it('§5b a busy wildcard is whole after a while, quiet or not', () => {
    const conversation = new Conversation('delta', [], '');
    last(['subscribe cds *', 'connect'], conversation);
    const lines: string[] = [];
    for (let index = 0; index < 20; index++) {
      lines.push(
        ...conversation.say(`< cds 1 n${index} a:${index}@${index}`),
        ...conversation.say('wait 200ms'),
      );
    }
    expect(lines.filter((line) => line.includes('settled [*]'))).to.have.length(1);
  });

  it('a wildcard with nothing is known to be empty', () => {
    expect(last(['subscribe cds *', 'connect', '< cds 1 n1'], sotw())[0]).to.equal(
      '= cds (wildcard) version 1 complete settled [*]',
    );
  });

  it('§8 a full-state response that lacks a name with an error is no deletion of it', () => {
    const conversation = sotw();
    last(['subscribe cds a', 'subscribe cds b', 'connect', '< cds 1 n1 a:1 b:1'], conversation);
    expect(conversation.say('< cds 2 n2 b:1 !a:UNAVAILABLE')[0]).to.equal('= cds version 2 !a:14');
    expect(conversation.say('< cds 3 n3 b:1')[0]).to.equal('= cds version 3 b:1 -a');
  });

  it('SotW: a resource with a TTL is told again each time, as its time starts anew', () => {
    const conversation = sotw();
    last(['subscribe cds *', 'connect', '< cds 1 n1 a:1~5000 b:1'], conversation);
    expect(conversation.say('< cds 1 n2 a:1~5000 b:1')[0]).to.contain('a:1');
  });

  it('SotW: wanted again in the same moment, upstream sees it go and come', () => {
    const conversation = sotw();
    last(['subscribe eds a', 'subscribe eds b', 'connect', '< eds 1 n1 a:1 b:1'], conversation);
    last(['unsubscribe eds a', 'subscribe eds a'], conversation);
    expect(conversation.say('flush')).to.deep.equal(['> eds [b] version 1 ack n1', '> eds [b a] ack n1']);
    expect(conversation.say('< eds 1 n2 a:1 b:1')[0]).to.equal('= eds version 1 a:1 b:1 partial settled [a]');
  });

  it('keys such as __proto__ are names like any other', () => {
    const answer = last(['subscribe cds *', 'connect', '< cds 1 n1 __proto__:1 constructor:2'], sotw());
    expect(answer[0]).to.equal('= cds (wildcard) version 1 __proto__:1 constructor:2 complete settled [*]');
  });

  it('what SotW responses say, compared with the last ones or not, adds up to the last one', () => {
    const state = fc.uniqueArray(
      fc.tuple(fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'), fc.constantFrom('1', '2', '3')),
      {
        selector: ([name]) => name,
      },
    );
    fc.assert(
      fc.property(fc.array(state, { minLength: 1, maxLength: 12 }), (states) => {
        const conversation = sotw();
        last(['subscribe cds *', 'connect'], conversation);
        const folded = new Map<string, string>();
        for (const [index, items] of states.entries()) {
          const line = items.map(([name, content]) => `${name}:${content}`).join(' ');
          const [applied = ''] = conversation.say(`< cds ${index} n${index} ${line}`.trim());
          for (const word of applied.split(' ').slice(5)) {
            if (word === 'complete' && index > 0) throw new Error('a second sweep');
            if (word.startsWith('-')) expect(folded.delete(word.slice(1))).to.equal(true);
            else if (/^\w:\d$/.test(word)) folded.set(word.slice(0, 1), word.slice(2));
          }
          expect([...folded]).to.have.deep.members(items);
        }
      }),
      { numRuns: 500 },
    );
  });

  describe('of which clients have invented more types than are remembered', () => {
    const invented = 'example.com/invented';
    const invent = (conversation: Conversation): void => {
      for (let at = 0; at < 300; at++)
        last(
          [`subscribe ${invented}-${at} a`, 'flush', `unsubscribe ${invented}-${at} a`, 'flush'],
          conversation,
        );
    };

    for (const protocol of ['delta', 'sotw'] as const) {
      it(`${protocol}: §5b.2 the wildcard of a type does not take over what its names had`, () => {
        const conversation = new Conversation(protocol, [], '');
        last(['connect', `subscribe ${invented} a`, 'flush', `unsubscribe ${invented} a`], conversation);
        const answer = last([`subscribe ${invented} *`, 'flush'], conversation);
        expect(answer.at(-1)).to.match(protocol === 'delta' ? /\+\[\*\]$/ : / \[\*\]$/);
        expect(conversation.say(`< ${invented} 1 n1 a:1`)[0]).to.match(/^= \S+ \(wildcard\) .*a:1/);
      });

      it(`${protocol}: §5b.2 its names do not take over what the wildcard had`, () => {
        const conversation = new Conversation(protocol, [], '');
        last(
          ['connect', `subscribe ${invented} *`, 'flush', `unsubscribe ${invented} *`, 'flush'],
          conversation,
        );
        last([`subscribe ${invented} a`, 'flush'], conversation);
        expect(conversation.say(`< ${invented} 1 n1 a:1`)[0]).to.match(/^= \S+ version/);
      });

      it(`${protocol}: §4.4 a wildcard is named where upstream may know its type from before`, () => {
        const conversation = new Conversation(protocol, [], '');
        last(
          ['connect', `subscribe ${invented} a`, 'flush', `unsubscribe ${invented} a`, 'flush'],
          conversation,
        );
        invent(conversation);
        const named = last([`subscribe ${invented} *`, 'flush'], conversation);
        expect(named.at(-1)).to.match(/\[\*\]$/);
        last(['disconnect'], conversation);
        const plain = protocol === 'delta' ? /invented$/ : /invented \[\]$/;
        expect(conversation.say('connect').at(-1)).to.match(plain);
      });
    }
  });

  it('many variants of one name in another order take no longer than others', () => {
    const milliseconds = (nameOf: (at: number) => string): number => {
      const conversation = new Conversation('sotw', 'native', '', 1_000_000);
      last(['subscribe cds *', 'connect'], conversation);
      const items = Array.from({ length: 10_000 }, (_, at) =>
        parseItem(`${nameOf(at)}{e=v${10_000 + at}}:1`),
      );
      const receive = (version: string, all: typeof items): void => {
        const bytes = sotwResponse(typeOf('cds'), version, `n${version}`, all);
        let lines = conversation.receive(bytes);
        while (lines[0] === '* a part is still to be read') lines = conversation.say('turn');
        expect(lines[0]).to.match(/^= cds/);
      };
      receive('1', items);
      const before = process.cpuUsage();
      receive('2', items.toReversed());
      const { user } = process.cpuUsage(before);
      return user / 1000;
    };
    const others = milliseconds((at) => `name-${at}`);
    expect(milliseconds(() => 'one-name')).to.be.below(2 * others + 100);
  });

  it('§3.9 names that upstream never answers cost nothing with each response', () => {
    for (const protocol of ['sotw', 'delta'] as const) {
      const read = (names: number): number => {
        const conversation = new Conversation(protocol, [], '');
        for (let at = 0; at < names; at++) conversation.say(`subscribe eds unknown-${at}`);
        last(['subscribe eds a', 'connect', '< eds 1 n1 a:1', 'subscribe eds b', 'flush'], conversation);
        return entriesRead(() => conversation.say('< eds 2 n2 a:2'));
      };
      expect(read(500), protocol).to.equal(read(50));
    }
  });

  it('§3.9 globs that upstream never answers are not held against each resource', () => {
    const looks = (globs: number): number => {
      const conversation = new Conversation('delta', [], '');
      const glob = (at: number): string => `xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/${at}/*`;
      last(['subscribe eds a', 'connect', '< eds 1 n1 a:1'], conversation);
      for (let at = 0; at < globs; at++) conversation.say(`subscribe eds ${glob(at)}`);
      conversation.say('flush');
      const puts = Array.from({ length: 20 }, (_, at) => `${glob(globs + at).slice(0, -1)}x:2`);
      const update = `< eds 2 n2 a:2 ${puts.join(' ')}`;
      return workOf(UpstreamSubscription.prototype, ['shows', 'isFor'], () => void conversation.say(update));
    };
    expect(looks(500)).to.equal(looks(50));
  });

  it('no bytes from a control plane throw', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.boolean(), (bytes, delta) => {
        const conversation = delta ? new Conversation('delta', [], '') : sotw();
        last(['subscribe cds *', 'connect'], conversation);
        conversation.receive(Buffer.from(bytes));
      }),
      { numRuns: 1000 },
    );
  });

  it('no damage to a response throws, and what is refused says why', () => {
    const items = ['a{e=1}:1@1', 'b:2~1500@2|c', '!d:NOT_FOUND', '-e{}', '-f'].map(parseItem);
    const damage = fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(damage, fc.boolean(), (places, delta) => {
        const conversation = delta ? new Conversation('delta', [], '') : sotw();
        last(['subscribe cds *', 'connect'], conversation);
        const bytes = (delta ? deltaResponse : sotwResponse)(typeOf('cds'), '1', 'n1', items);
        for (const [place, value] of places) bytes[place % bytes.length] = value;
        const lines = conversation.receive(bytes);
        expect(lines).to.not.have.length(0);
      }),
      { numRuns: 3000 },
    );
  });
});
