import { expect } from 'chai';
import { resourceName } from '../../../src/model/brand.ts';
import { type Constraints, UNCONSTRAINED } from '../../../src/model/constraints.ts';
import { internParameters } from '../../../src/model/parameters.ts';
import type { ResourceError } from '../../../src/model/transaction.ts';
import { AckedResources } from '../../../src/upstream/ads/acked-resources.ts';
import {
  deltaAnswers,
  lastRequestSeen,
  namesAnswered,
  ofOldestRequest,
  sotwAnswers,
} from '../../../src/upstream/ads/answer-attribution.ts';
import {
  type UpstreamSubscription,
  UpstreamSubscriptions,
  waitingCollections,
} from '../../../src/upstream/ads/upstream-subscriptions.ts';
import { cpuSeconds } from '../../support/cpu.ts';
import { put, type, when } from '../../support/in-memory-relay.ts';

const eds = type('eds');
const all = '*';
const glob = 'xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/g/*';
const other = 'xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/h/*';
const inGlob = (id: string): string => glob.replace('*', id);

interface Asked {
  readonly selector: string;
  readonly request: number;
  readonly parameters?: Readonly<Record<string, string>>;
  readonly seen?: true;
  readonly resolved?: true;
  /** An earlier stream has resolved it, and delivered what this one has not confirmed. */
  readonly earlierStream?: true;
  /** As it was in the first request, or resource_timeout has passed. */
  readonly anyResponse?: true;
}

interface Case {
  readonly name: string;
  readonly asked: readonly Asked[];
  /** The resources of the response: names, or names with constraints. */
  readonly puts?: readonly (string | readonly [string, Constraints])[];
  /** Those of them that upstream had sent before, with the same version. */
  readonly repeated?: readonly string[];
  readonly removals?: readonly string[];
  readonly heartbeats?: readonly string[];
  readonly errors?: readonly string[];
  /** The positions in `asked`. */
  readonly answered: readonly number[];
}

interface Waiting {
  readonly subscriptions: UpstreamSubscriptions;
  readonly acked: AckedResources;
  readonly sweepPending: boolean;
  readonly list: readonly UpstreamSubscription[];
}

function waiting(asked: readonly Asked[], locators: boolean): Waiting {
  const subscriptions = new UpstreamSubscriptions(locators);
  const list = asked.map((one) => {
    const parameters = internParameters(Object.entries(one.parameters ?? {}));
    const selector = resourceName(one.selector);
    const { subscription } = subscriptions.add({ type: eds, selector, parameters });
    subscription.requestNumber = one.request;
    subscription.anyResponseAnswers = one.anyResponse === true;
    subscription.responseSeen = one.seen === true;
    subscription.resolvedOnThisStream = one.resolved === true;
    if (one.earlierStream === true) subscriptions.unresolved.delete(subscription);
    return subscription;
  });
  const sweepPending = asked.some(({ earlierStream }) => earlierStream === true);
  return { subscriptions, acked: new AckedResources(), sweepPending, list };
}

const identity = (name: string): { name: ReturnType<typeof resourceName>; constraints: Constraints } => ({
  name: resourceName(name),
  constraints: UNCONSTRAINED,
});
const unavailable = (name: string): ResourceError => ({
  ...identity(name),
  code: 14,
  message: 'faulty',
  status: new Uint8Array(),
});
const resource = (one: string | readonly [string, Constraints]): ReturnType<typeof put> =>
  typeof one === 'string' ? put(eds, one, 'x') : put(eds, one[0], 'x', { constraints: one[1] });

function positions(
  list: readonly UpstreamSubscription[],
  of: ReadonlySet<UpstreamSubscription> | readonly UpstreamSubscription[],
): readonly number[] {
  const found = new Set(of);
  return [...list.keys()].filter((index) => {
    const subscription = list[index];
    return subscription !== undefined && found.has(subscription);
  });
}

const delta: readonly Case[] = [
  {
    name: 'whatever was in the first request, by any response',
    asked: [{ selector: all, request: 1, anyResponse: true }],
    removals: ['a'],
    answered: [0],
  },
  {
    name: 'a later glob, by a resource that it shows',
    asked: [{ selector: glob, request: 2 }],
    puts: [inGlob('a')],
    answered: [0],
  },
  {
    name: 'not by a resource that it does not show',
    asked: [{ selector: glob, request: 2 }],
    puts: ['a'],
    answered: [],
  },
  {
    name: 'globs of one request, by a resource of one of them',
    asked: [
      { selector: glob, request: 2 },
      { selector: other, request: 2 },
    ],
    puts: [inGlob('a')],
    answered: [0, 1],
  },
  {
    name: 'not a glob of another request',
    asked: [
      { selector: glob, request: 2 },
      { selector: other, request: 3 },
    ],
    puts: [inGlob('a')],
    answered: [0],
  },
  {
    name: 'a wildcard with parameters, by a variant that matches them',
    asked: [
      { selector: all, request: 2, parameters: { env: 'prod' } },
      { selector: all, request: 3, parameters: { env: 'test' } },
    ],
    puts: [['a', when({ env: 'test' })]],
    answered: [1],
  },
  {
    name: 'on a new stream, the older one also if an earlier stream has resolved it',
    asked: [
      { selector: all, request: 1, anyResponse: true, earlierStream: true },
      { selector: all, request: 2, parameters: { env: 'prod' } },
    ],
    puts: ['a'],
    answered: [0],
  },
  {
    name: 'of two requests that wait, the older one, by a resource that both show',
    asked: [
      { selector: all, request: 1 },
      { selector: all, request: 2, parameters: { env: 'prod' } },
    ],
    puts: ['a'],
    answered: [0],
  },
  {
    name: 'then the newer one',
    asked: [
      { selector: all, request: 1, seen: true },
      { selector: all, request: 2, parameters: { env: 'prod' } },
    ],
    puts: ['a'],
    repeated: ['a'],
    answered: [1],
  },
  {
    name: 'both, if something in it is only for the newer one',
    asked: [
      { selector: all, request: 1 },
      { selector: all, request: 2, parameters: { env: 'prod' } },
    ],
    puts: ['a', ['b', when({ env: 'prod' })]],
    answered: [0, 1],
  },
  {
    name: 'an empty response is for the one that has waited longest, and for no later one',
    asked: [
      { selector: glob, request: 2, seen: true },
      { selector: other, request: 3 },
      { selector: all, request: 4 },
    ],
    answered: [1],
  },
  {
    name: 'an empty response that answers the first request does not answer a later one too',
    asked: [
      { selector: all, request: 1, anyResponse: true, parameters: { env: 'prod' } },
      { selector: all, request: 2, parameters: { env: 'dev' } },
    ],
    answered: [0],
  },
  {
    name: 'an error alone may be of what an earlier one shows: no empty response',
    asked: [
      { selector: all, request: 1, parameters: { env: 'prod' }, seen: true },
      { selector: all, request: 2 },
    ],
    errors: ['a'],
    answered: [],
  },
  {
    name: 'an error alone answers the first request, as any response does',
    asked: [{ selector: all, request: 1, anyResponse: true }],
    errors: ['a'],
    answered: [0],
  },
  {
    name: 'not by what may be an update of an earlier wildcard',
    asked: [
      { selector: all, request: 1, parameters: { env: 'prod' }, seen: true },
      { selector: all, request: 2 },
    ],
    puts: ['a'],
    answered: [],
  },
  {
    name: 'nor by a removal that may be one',
    asked: [
      { selector: all, request: 1, parameters: { env: 'prod' }, seen: true },
      { selector: all, request: 2 },
    ],
    removals: ['a'],
    answered: [],
  },
  {
    name: 'nor by what may be an update of an earlier name',
    asked: [
      { selector: inGlob('a'), request: 1, resolved: true },
      { selector: glob, request: 2 },
    ],
    puts: [inGlob('a')],
    answered: [],
  },
  {
    name: 'by what the earlier one shows too, if it is as it was: no update says it again',
    asked: [
      { selector: all, request: 1, parameters: { env: 'prod' }, seen: true },
      { selector: all, request: 2 },
    ],
    puts: ['a'],
    repeated: ['a'],
    answered: [1],
  },
  {
    name: 'by what the earlier one does not show, beside what may be an update',
    asked: [
      { selector: all, request: 1, parameters: { env: 'prod' }, seen: true },
      { selector: all, request: 2, parameters: { env: 'test' } },
    ],
    puts: ['a', ['b', when({ env: 'test' })]],
    answered: [1],
  },
  {
    name: 'a name of the same request is no earlier one',
    asked: [
      { selector: inGlob('a'), request: 2, resolved: true },
      { selector: glob, request: 2 },
    ],
    puts: [inGlob('a')],
    answered: [1],
  },
];

describe('which subscriptions a response answers', () => {
  describe('delta, wildcards and globs', () => {
    for (const {
      name,
      asked,
      puts = [],
      repeated = [],
      removals = [],
      heartbeats = [],
      errors = [],
      answered,
    } of delta) {
      it(name, () => {
        const resources = puts.map(resource);
        const again = new Map(resources.flatMap((one) => (repeated.includes(one.name) ? [[one, true]] : [])));
        const entries = resources.length + removals.length + heartbeats.length + errors.length;
        const stream = {
          ...waiting(asked, true),

          repeated: again,
          isEmpty: entries === 0,
        };
        const said = {
          puts: resources,
          removals: removals.map(identity),
          heartbeats: heartbeats.map((one) => ({ ...identity(one), ttlMilliseconds: 1000 })),
          resourceErrors: errors.map(unavailable),
        };
        const candidates = waitingCollections(stream.list);
        expect(positions(stream.list, deltaAnswers(stream, said, candidates))).to.deep.equal(answered);
      });
    }

    it('without locators: the only wildcard of a type, by any response', () => {
      const stream = {
        ...waiting([{ selector: all, request: 2 }], false),
        repeated: new Map<never, never>(),
        isEmpty: false,
      };
      const said = { puts: [resource('a')], removals: [], heartbeats: [], resourceErrors: [] };
      expect(positions(stream.list, deltaAnswers(stream, said, stream.list))).to.deep.equal([0]);
    });
  });

  describe('delta, a resource that is subscribed by name', () => {
    const answered = { parameters: { env: 'x' }, selector: 'a', resolved: true } as const;
    const waits = { parameters: { env: 'y' }, selector: 'a' } as const;
    for (const { name, asked, repeated = false, positions: expected } of [
      { name: 'the only subscription, whatever it is', asked: [{ ...waits, request: 2 }], positions: [0] },
      {
        name: 'of two that wait, the older one',
        asked: [
          { selector: 'a', request: 1 },
          { ...waits, request: 2 },
        ],
        positions: [0],
      },
      {
        name: 'two of one request',
        asked: [
          { selector: 'a', request: 2 },
          { ...waits, request: 2 },
        ],
        positions: [0, 1],
      },
      {
        name: 'what has changed may be an update of one that is answered',
        asked: [
          { ...answered, request: 1 },
          { ...waits, request: 2 },
        ],
        positions: [0],
      },
      {
        name: 'no update repeats what has not changed',
        asked: [
          { ...answered, request: 1 },
          { ...waits, request: 2 },
        ],
        repeated: true,
        positions: [0, 1],
      },
      {
        name: 'none that is not asked yet',
        asked: [
          { ...answered, request: 1 },
          { ...waits, request: 0 },
        ],
        positions: [0],
      },
      {
        name: 'each that was in the first request, or has waited for resource_timeout',
        asked: [
          { ...answered, request: 1 },
          { ...waits, request: 2, anyResponse: true },
        ],
        positions: [0, 1],
      },
      {
        name: 'an alias does not wait for the name',
        asked: [
          { selector: 'alias', request: 1 },
          { ...waits, request: 2 },
        ],
        positions: [0, 1],
      },
      {
        name: 'no wildcard',
        asked: [
          { selector: all, request: 1 },
          { ...waits, request: 2 },
        ],
        positions: [1],
      },
    ] satisfies readonly {
      name: string;
      asked: readonly Asked[];
      repeated?: boolean;
      positions: readonly number[];
    }[]) {
      it(name, () => {
        const { list } = waiting(asked, true);
        expect(positions(list, namesAnswered(list, repeated))).to.deep.equal(expected);
      });
    }
    it('of thousands of locators of one name each is looked at once', () => {
      const { list } = waiting(
        Array.from({ length: 20_000 }, (_, at) => ({
          selector: 'a',
          parameters: { env: `${at}` },
          request: at + 1,
        })),
        true,
      );
      const before = cpuSeconds();
      expect(namesAnswered(list, false)).to.have.length(1);
      expect(cpuSeconds() - before).to.be.below(0.5);
    });
  });

  it('delta, a removed name: the locators of the oldest request that waits', () => {
    const { list } = waiting(
      [
        { selector: 'a', request: 3, parameters: { env: 'x' } },
        { selector: 'a', request: 2, parameters: { env: 'y' } },
        { selector: 'a', request: 2, parameters: { env: 'z' } },
        { selector: 'a', request: 0, parameters: { env: 'not asked yet' } },
        { selector: 'a', request: 1, parameters: { env: 'answered' } },
      ],
      true,
    );
    for (const subscription of list.slice(4)) subscription.resolvedOnThisStream = true;
    expect(positions(list, ofOldestRequest(list, new Set()))).to.deep.equal([1, 2]);
    expect(positions(list, ofOldestRequest(list, new Set(list.slice(4))))).to.deep.equal([4]);
    // Silence was its answer so far.
    for (const subscription of list.slice(4)) subscription.awaitsLateAnswer = true;
    expect(positions(list, ofOldestRequest(list, new Set()))).to.deep.equal([4]);
  });

  describe('SotW', () => {
    const requests: readonly Asked[] = [
      { selector: all, request: 1, anyResponse: true },
      { selector: glob, request: 2 },
      { selector: other, request: 3 },
    ];

    for (const [lastSeen, answered] of [
      [0, [0]],
      [2, [0, 1]],
      [3, [0, 1, 2]],
    ] as const) {
      it(`of a response that has seen request ${lastSeen}`, () => {
        const { list } = waiting(requests, true);
        expect(positions(list, sotwAnswers(lastSeen, list))).to.deep.equal(answered);
      });
    }

    it('without locators the wildcard, by any response', () => {
      const { list } = waiting([{ selector: all, request: 2 }], false);
      expect(positions(list, sotwAnswers(0, list))).to.deep.equal([0]);
    });

    for (const [name, names, seen] of [
      ['a resource that an old request subscribes to proves nothing new', ['a'], 1],
      ['one that only a later request subscribes to has been seen', [glob.replace('*', 'x')], 2],
      ['the latest of all resources counts', [glob.replace('*', 'x'), other.replace('*', 'x')], 3],
      ['one that nobody subscribes to proves nothing', ['b'], 0],
    ] as const) {
      it(`the last request seen: ${name}`, () => {
        const { subscriptions } = waiting(
          [
            { selector: 'a', request: 1 },
            { selector: glob, request: 2 },
            { selector: other, request: 3 },
          ],
          true,
        );
        expect(lastRequestSeen(subscriptions, names.map(resource))).to.equal(seen);
      });
    }
  });
});
