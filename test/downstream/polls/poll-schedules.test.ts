import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { NodeSchema } from '../../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  DiscoveryRequestSchema,
  DiscoveryResponseSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { atOnce } from '../../../src/model/time-slices.ts';
import type { Put } from '../../../src/model/transaction.ts';
import { typeInfo } from '../../../src/model/types.ts';
import { ALLOW_ALL } from '../../../src/security/authorization.ts';
import { prefixLength } from '../../../src/wire/grpc-frames.ts';
import { InMemoryRelay, namedHolder, put, resources, type } from '../../support/in-memory-relay.ts';
import { testPeer } from '../../support/peers.ts';
import { Random } from '../../support/random.ts';
import { anyOf, realPut } from '../../support/real-bodies.ts';

/** As over REST, in milliseconds. */
const longest = 500;
const shorts = ['cds', 'rds'] as const;
type Short = (typeof shorts)[number];
const targets = ['a', 'b', 'c'];
const swaps = 5;
/** Between two of them, in refresh delays: what waits has bounds. */
const apart = 10;

/** Where a route leads, by its bytes. */
const leadsTo = new Map<string, string>();

function routeTo(target: string): Put {
  const routes = [{ match: { prefix: '/' }, route: { cluster: target } }];
  const any = anyOf(type('rds'), { name: 'r', virtualHosts: [{ name: 'all', domains: ['*'], routes }] });
  leadsTo.set(Buffer.from(fromBinary(AnySchema, any).value).toString('hex'), target);
  return put(type('rds'), 'r', target, { any });
}

/** What a control plane says when it moves everything to this one. */
const said: readonly ((lab: InMemoryRelay, target: string) => void)[] = [
  (lab, target) =>
    lab.says({ type: type('cds'), complete: true, puts: [realPut('cds', target, { type: 'EDS' })] }),
  (lab, target) => lab.says({ type: type('rds'), holder: namedHolder, puts: [routeTo(target)] }),
];

/** As Envoy: each type is polled by itself, after `refresh_delay` and up to as long again. */
class EnvoyLike {
  readonly #has = new Map<Short, string>();
  clusters: ReadonlySet<string> = new Set();
  route = '';
  readonly #lab: InMemoryRelay;
  readonly #id: string;
  readonly #peer = testPeer();

  constructor(lab: InMemoryRelay, id: string) {
    this.#lab = lab;
    this.#id = id;
  }

  poll(short: Short): void {
    const { polls } = this.#lab.relay;
    const message = create(DiscoveryRequestSchema, {
      node: create(NodeSchema, { id: this.#id }),
      versionInfo: this.#has.get(short) ?? '',
      resourceNames: short === 'rds' ? ['r'] : [],
    });
    const bytes = Buffer.from(toBinary(DiscoveryRequestSchema, message));
    const read = atOnce(polls.read(typeInfo(type(short)), bytes, this.#peer, 'rest'));
    if (!read.ok) throw new Error(read.error.status.message);
    atOnce(
      polls.ask(read.value, this.#peer, longest, (outcome) => {
        if (outcome.kind !== 'response') return;
        polls.sent(read.value, outcome, outcome.response.bytes);
        const answer = fromBinary(DiscoveryResponseSchema, outcome.response.bytes.subarray(prefixLength));
        this.#has.set(short, outcome.response.version);
        if (short === 'cds') this.clusters = new Set(Object.keys(resources(answer)));
        else
          for (const { value } of answer.resources)
            this.route = leadsTo.get(Buffer.from(value).toString('hex')) ?? '?';
      }),
    );
    this.#lab.settle();
  }

  get isServed(): boolean {
    return this.route === '' || this.clusters.has(this.route);
  }

  get shown(): string {
    return `${this.route} of ${[...this.clusters].join(' ')}`;
  }
}

/** While everything moves, in refresh delays, and how often. */
const moves = [
  { at: 2, often: 1, to: 'canary' },
  { at: 3.5, often: 0.5, to: 'reload' },
  { at: 5, often: 0.5, to: 'released' },
  { at: 7, often: 1, to: 'all' },
] as const;

/**
 * What happened until a route led nowhere, or at the end something was left; empty: neither. `rollout`: canaries get it
 * first, and the client becomes one meanwhile.
 */
async function run(seed: number, refreshMs: number, rollout: boolean): Promise<readonly string[]> {
  const random = new Random(seed);
  let access = ALLOW_ALL;
  const lab = new InMemoryRelay({ limits: { removalGraceMilliseconds: 15_000 }, access: () => access });
  if (rollout) lab.relay.gate.gatedTypes(new Set(shorts.map(type)));
  const move = async (to: (typeof moves)[number]['to']): Promise<void> => {
    happened.push(`${lab.clock.now()} moves: ${to}`);
    if (to === 'reload') {
      lab.relay.polls.reidentify();
      // What is done about it in slices.
      for (let turn = 0; turn < 100; turn++) await Promise.resolve();
      return;
    }
    if (to === 'all') lab.relay.gate.release();
    lab.settle();
    access = to === 'canary' ? ALLOW_ALL.ofCanaries : ALLOW_ALL;
    lab.relay.polls.rereadRequests();
  };
  const client = new EnvoyLike(lab, 'a');
  const happened: string[] = [];
  const again = (short: Short): void => {
    // Now and then its answer is lost, or late, and it asks once more.
    for (let count = random.chance(0.1) ? 2 : 1; count > 0; count--) client.poll(short);
    happened.push(`${lab.clock.now()} ${short}: ${client.shown}`);
    lab.clock.after(refreshMs + random.below(refreshMs), () => again(short));
  };
  for (const short of shorts) {
    client.poll(short);
    lab.clock.after(random.below(refreshMs), () => again(short));
  }
  let now = 'a';
  for (const say of said) say(lab, now);
  lab.clock.advance(6 * refreshMs);
  for (let swap = 0; swap < swaps; swap++) {
    now = random.pick(targets.filter((one) => one !== now));
    const to = now;
    for (const say of said) lab.clock.after(random.below(2) * random.below(500), () => say(lab, to));
    happened.push(`${lab.clock.now()} everything moves to ${to}`);
    const due = rollout ? moves.filter(({ often }) => random.chance(often)) : [];
    for (let step = 0; step < (rollout ? apart + 4 : apart) * 20; step++) {
      for (const { at, to: where } of due) if (at * 20 === step) await move(where);
      lab.clock.advance(refreshMs / 20);
      if (!client.isServed) return [...happened, ...lab.events.filter((one) => one.startsWith('overdue'))];
    }
  }
  lab.clock.advance(Math.max(15_000, 20 * refreshMs));
  return client.shown === `${now} of ${now}` ? [] : [...happened, 'something is left'];
}

describe('a client that polls each type when it likes, while a control plane moves its clusters and routes', () => {
  for (const refreshMs of [200, 5000])
    it(`§8.6, §8.7 refresh_delay ${refreshMs} ms: the same while it moves to canaries and back, and over reloads`, async () => {
      for (let seed = 0; seed < 25; seed++)
        expect(await run(seed, refreshMs, true), `seed ${seed}`).to.deep.equal([]);
    });

  for (const refreshMs of [200, 1000, 5000, 30_000, 90_000])
    it(`§8.6, §8.7 refresh_delay ${refreshMs} ms: its route never leads nowhere, and what is gone goes at last`, async () => {
      for (let seed = 0; seed < 25; seed++)
        expect(await run(seed, refreshMs, false), `seed ${seed}`).to.deep.equal([]);
    });
});
