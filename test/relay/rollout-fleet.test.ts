import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import { nameKey } from '../../src/model/holds.ts';
import { type CanaryStream, unknownCanary } from '../../src/releases/waiting.ts';
import { RelayFleet } from '../../src/rollout-fleet.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import {
  type DeltaClient,
  InMemoryRelay,
  node,
  put,
  SotwClient,
  type as url,
  when,
} from '../support/in-memory-relay.ts';

const rds = url('rds');
const cds = url('cds');
const waiting = new Map([rds, cds].map((one) => [one, new Set(['a', 'b'].map(resourceName))]));

/** A canary that has accepted `b` of what waits, was sent `a`, and has not been looked at. */
class Canary {
  readonly #short: 'rds' | 'cds';
  readonly #fleet: RelayFleet;
  readonly #lab: InMemoryRelay;
  readonly #client: SotwClient | DeltaClient;
  #nonce = '';
  #names: readonly string[] = [];
  readonly #ended: CanaryStream[] = [];
  /** How often it was looked at because its subscription was about to change. */
  looks = 0;

  constructor(protocol: 'sotw' | 'delta', short: 'rds' | 'cds' = 'rds') {
    this.#short = short;
    this.#lab = new InMemoryRelay({
      access: () => ALLOW_ALL.ofCanaries,
      streams: {
        changing: (stream) => {
          this.looks++;
          this.#fleet.changing(stream, waiting);
        },
        closed: (stream) => {
          this.#ended.push(this.#fleet.canary(stream, waiting) ?? unknownCanary);
          this.#fleet.touched(stream.id);
        },
      },
      touched: (stream) => this.#fleet.touched(stream),
      published: (commit) => this.#fleet.committed(commit),
    });
    this.#fleet = new RelayFleet(this.#lab.relay, this.#lab.clock, () => {});
    this.#lab.relay.gate.gatedTypes(new Set([rds, cds]));
    this.#client = protocol === 'sotw' ? this.#lab.sotw() : this.#lab.delta();
    this.gets('a', '1');
    this.gets('b', '1');
    this.says({ subscribesTo: ['a', 'b'], env: 'prod' });
    this.says();
    this.gets('b', '2');
    this.says();
    this.gets('a', '2');
  }

  gets(name: string, content: string): void {
    const envs = ['prod', 'test'].map((env) => ({ constraints: when({ env }) }));
    const type = url(this.#short);
    this.#lab.says({ type, puts: envs.map((more) => put(type, name, content, more)) });
  }

  /** It answers what it was sent last. */
  says({ rejects = false, subscribesTo = this.#names, env, nonce }: Answer = {}): void {
    this.#nonce = this.#client.received().at(-1)?.nonce ?? this.#nonce;
    const request = {
      responseNonce: nonce ?? this.#nonce,
      ...(env === undefined ? {} : { node: node({ env }) }),
      ...(rejects ? { errorDetail: { code: 13, message: 'no' } } : {}),
    };
    const before = new Set(this.#names);
    this.#names = subscribesTo;
    const names = new Set(subscribesTo);
    if (this.#client instanceof SotwClient)
      this.#client.send(this.#short, { ...request, resourceNames: [...subscribesTo] });
    else
      this.#client.send(this.#short, {
        ...request,
        resourceNamesSubscribe: [...names.difference(before)],
        resourceNamesUnsubscribe: [...before.difference(names)],
      });
  }

  ends(): void {
    this.#client.disconnect();
  }

  /** What a rollout hears of it. */
  heard(): readonly string[] {
    const { canaries } = this.#fleet.survey(waiting);
    this.#fleet.stop();
    return [
      ...canaries.map(textOf),
      ...this.#ended.map((one) => `ended: ${textOf(one)} of ${keysIn(one.names)}`),
    ];
  }
}

interface Answer {
  readonly rejects?: boolean;
  readonly subscribesTo?: readonly string[];
  readonly env?: string;
  readonly nonce?: string;
}

function textOf({ classKey, standing, names }: CanaryStream): string {
  const of = standing.kind === 'rejected' ? [standing.names] : names;
  return `${classKey} ${standing.kind} ${keysIn(of)}`;
}

const keysIn = (sets: CanaryStream['names']): string => sets.flatMap((keys) => [...keys]).join();

const [a, b] = ['a', 'b'].map((name) => nameKey(rds, resourceName(name)));
const [prod, test] = ['prod', 'test'].map((env) => JSON.stringify([['env', env]]));

describe('the clients as a rollout sees them', () => {
  it('canaries that subscribe to many names, and to equal ones, share the sets of these names', () => {
    const lab = new InMemoryRelay({ access: () => ALLOW_ALL.ofCanaries });
    lab.relay.gate.gatedTypes(new Set([url('cds'), url('lds')]));
    const names = Array.from({ length: 50 }, (_, at) => `c${at}`);
    for (let count = 0; count < 3; count++) {
      const client = lab.delta();
      for (const short of ['cds', 'lds']) client.send(short, { node: node(), resourceNamesSubscribe: names });
    }
    const contents = (content: string) => Object.fromEntries(names.map((name) => [name, content]));
    for (const content of ['1', '2']) for (const short of ['cds', 'lds']) lab.full(short, contents(content));
    const all = new Set(names.map(resourceName));
    const waiting = new Map(['cds', 'lds'].map((short) => [url(short), all]));
    const fleet = new RelayFleet(lab.relay, lab.clock, () => {});
    const { canaries } = fleet.survey(waiting);
    expect(canaries).to.have.length(3);
    const [first] = canaries;
    for (const { names: sets } of canaries) {
      expect(sets).to.have.length(2);
      for (const [at, set] of sets.entries()) expect(set).to.equal(first?.names[at]);
    }
    expect(first?.names[0]).to.deep.equal(
      new Set(names.map((name) => nameKey(url('cds'), resourceName(name)))),
    );
    fleet.stop();
  });

  it('one that ends before anybody has looked at what waits was a canary', () => {
    const waiting = new Map([[url('cds'), new Set([resourceName('a')])]]);
    const ended: (CanaryStream | undefined)[] = [];
    const lab = new InMemoryRelay({
      access: () => ALLOW_ALL.ofCanaries,
      streams: { closed: (stream) => void ended.push(fleet.canary(stream, waiting)) },
    });
    const fleet = new RelayFleet(lab.relay, lab.clock, () => {});
    lab.relay.gate.gatedTypes(new Set([url('cds')]));
    const client = lab.delta();
    client.send('cds', { node: node(), resourceNamesSubscribe: ['a'] });
    for (const content of ['1', '2']) lab.full('cds', { a: content });
    client.disconnect();
    const names = [new Set([nameKey(url('cds'), resourceName('a'))])];
    expect(ended.map((canary) => canary?.names)).to.deep.equal([names]);
    fleet.stop();
  });

  it('one that waits only for a name that does not wait itself has accepted what waits', () => {
    const waiting = new Map([[rds, new Set([resourceName('a')])]]);
    const lab = new InMemoryRelay({
      access: () => ALLOW_ALL.ofCanaries,
      touched: (stream) => fleet.touched(stream),
      published: (commit) => fleet.committed(commit),
    });
    const fleet = new RelayFleet(lab.relay, lab.clock, () => {});
    lab.relay.gate.gatedTypes(new Set([rds]));
    const client = lab.delta();
    client.send('rds', {
      node: node(),
      resourceNamesSubscribe: ['a', 'unanswered'],
      initialResourceVersions: { unanswered: '1' },
    });
    // Upstream says nothing of the other name.
    const says = (content: string): void =>
      lab.says({ type: rds, puts: [put(rds, 'a', content)], resolved: [] });
    const answers = (): void => client.send('rds', { responseNonce: client.received().at(-1)?.nonce ?? '' });
    const heard = () => fleet.survey(waiting).canaries.map(({ standing }) => standing.kind);
    says('1');
    answers();
    says('2');
    expect(heard()).to.deep.equal(['waiting']);
    answers();
    expect(heard()).to.deep.equal(['accepted']);
    fleet.stop();
  });

  const rows: readonly {
    readonly rule: string;
    readonly does: (canary: Canary) => void;
    readonly hears: readonly string[];
  }[] = [
    {
      rule: 'a request that unsubscribes what it rejects says that it is bad',
      does: (canary) => canary.says({ rejects: true, subscribesTo: ['b'] }),
      hears: [`${prod} accepted ${b}`, `${prod} rejected ${a}`],
    },
    {
      rule: 'so does one that unsubscribes all before anybody has looked',
      does: (canary) => {
        canary.says({ rejects: true });
        canary.says({ subscribesTo: [] });
      },
      hears: [`${prod} rejected ${a}`],
    },
    {
      rule: 'so does one that is of another class then',
      does: (canary) => {
        canary.says({ rejects: true });
        canary.says({ env: 'test' });
        canary.says();
      },
      hears: [`${test} accepted ${a},${b}`, `${prod} rejected ${a}`],
    },
    {
      rule: 'so does one that unsubscribes it, and ends',
      does: (canary) => {
        canary.says({ rejects: true, subscribesTo: ['b'] });
        canary.ends();
      },
      hears: [`ended: ${prod} rejected ${a} of ${b}`],
    },
    {
      rule: 'so does one that unsubscribes all, and ends: it is an end of nothing else',
      does: (canary) => {
        canary.says({ rejects: true, subscribesTo: ['b'] });
        canary.says({ subscribesTo: [] });
        canary.ends();
      },
      hears: [`ended: ${prod} rejected ${a} of ${a}`],
    },
    {
      rule: 'one that is of another class then ends in that',
      does: (canary) => {
        canary.says({ rejects: true });
        canary.says({ env: 'test' });
        canary.says();
        canary.ends();
      },
      hears: [`ended: ${test} rejected ${a} of ${a},${b}`],
    },
    {
      rule: 'one that rejects something else in another class has rejected it in the first',
      does: (canary) => {
        canary.says({ rejects: true, subscribesTo: ['b', 'c'] });
        canary.gets('c', '1');
        canary.says();
        canary.says({ env: 'test' });
        canary.says();
        canary.gets('c', '2');
        canary.says({ rejects: true });
        canary.says({ subscribesTo: ['b'] });
        canary.says();
      },
      hears: [`${test} accepted ${b}`, `${prod} rejected ${a}`],
    },
    {
      rule: 'not so once upstream says something else there',
      does: (canary) => {
        canary.says({ rejects: true, subscribesTo: ['b'] });
        canary.gets('a', '3');
      },
      hears: [`${prod} accepted ${b}`],
    },
    {
      rule: 'who only subscribes to more still says it by itself',
      does: (canary) => canary.says({ rejects: true, subscribesTo: ['a', 'b', 'c'] }),
      hears: [`${prod} rejected ${a}`],
    },
  ];
  for (const protocol of ['delta', 'sotw'] as const)
    for (const { rule, does, hears } of rows) {
      it(`${protocol}, a canary rejects what waits: ${rule}`, () => {
        const canary = new Canary(protocol);
        does(canary);
        expect(canary.heard()).to.deep.equal(hears);
      });
    }

  it('sotw, a canary rejects what waits: stale requests cost no look', () => {
    const canary = new Canary('sotw');
    canary.says({ rejects: true });
    for (let count = 0; count < 10; count++) canary.says({ subscribesTo: [`c${count}`], nonce: 'stale' });
    expect(canary.looks).to.equal(0);
  });

  it('sotw, a canary rejects a whole state, and unsubscribes a part of it: it has rejected it', () => {
    const canary = new Canary('sotw', 'cds');
    canary.says({ rejects: true });
    canary.says({ subscribesTo: ['b'] });
    const [all, some] = [['a', 'b'], ['b']].map((names) =>
      names.map((name) => nameKey(cds, resourceName(name))).join(),
    );
    expect(canary.heard()).to.deep.equal([`${prod} accepted ${some}`, `${prod} rejected ${all}`]);
  });
});
