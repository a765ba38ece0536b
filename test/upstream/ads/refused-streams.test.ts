import { fromBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import {
  type DeltaDiscoveryRequest,
  DeltaDiscoveryRequestSchema,
} from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName } from '../../../src/model/brand.ts';
import { itsOwn } from '../../../src/model/load.ts';
import { internParameters } from '../../../src/model/parameters.ts';
import type { Interest } from '../../../src/model/transaction.ts';
import type { Log } from '../../../src/observe/log.ts';
import { AdsUpstream } from '../../../src/upstream/ads/ads-upstream.ts';
import type { Channel, ChannelStreamHandler } from '../../../src/upstream/ads/grpc-channel.ts';
import { Code } from '../../../src/wire/grpc-status.ts';
import { Random } from '../../simulator/random.ts';
import { VirtualClock } from '../../support/virtual-clock.ts';
import { deltaResponse, parseItem, typeOf } from './responses.ts';

const seconds = 1000;
const resourceTimeout = 15 * seconds;
const quiet: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => quiet };

const want = (type: string, selector: string, env = 'prod'): Interest => ({
  type: typeOf(type),
  selector: resourceName(selector),
  parameters: internParameters([['env', env]]),
});

/** What an endpoint does with a stream, by its first request. */
type Behaviour = (request: DeltaDiscoveryRequest, stream: Stream) => void;

interface Stream {
  answer(): void;
  /** With what cannot be read. */
  babble(): void;
  end(code?: Code): void;
}

/** A control plane that answers what is new and is silent about what is resumed, as go-control-plane. */
const works: Behaviour = ({ initialResourceVersions }, stream) => {
  if (Object.keys(initialResourceVersions).length === 0) stream.answer();
};
/** A proxy whose control plane is gone. */
const refuses: Behaviour = (_, stream) => stream.end();
const ofType = ({ typeUrl }: DeltaDiscoveryRequest, type: string): boolean => typeUrl === typeOf(type);

/** An upstream of so many endpoints, in a time that passes when it is told to. They work until it is said otherwise. */
function setting(
  count: number,
  part: {
    readonly backoffMs?: number;
    readonly resourceTimeoutMs?: number;
    readonly random?: () => number;
    readonly services?: 'PER_TYPE';
  } = {},
) {
  const clock = new VirtualClock();
  let via = 'r';
  const behaviours = Array.from({ length: count }, () => works);
  const open = Array.from({ length: count }, () => new Set<Stream>());
  /** Of each endpoint. */
  const connections = Array.from({ length: count }, () => 0);
  /** How often it was down, and was connected. */
  const seen = { down: 0, connects: 0 };

  function stream(endpoint: number, handler: ChannelStreamHandler) {
    const all = open[endpoint];
    const answered = new Set<string>();
    let nonce = 0;
    let isOpen = true;
    const end = (): void => {
      isOpen = false;
      all?.delete(control);
    };
    const later = (run: () => void): void => {
      clock.after(1, () => {
        if (isOpen) run();
      });
    };
    let first: DeltaDiscoveryRequest | undefined;
    const control: Stream = {
      answer: () => {
        const { typeUrl, resourceNamesSubscribe: names } = first ?? {};
        const items = (names ?? []).map((name) => parseItem(`${name === '*' ? 'all' : name}:content@1`));
        later(() => handler.message(deltaResponse(typeOf(nameOf(typeUrl)), '1', `${nonce++}`, items)));
      },
      babble: () => later(() => handler.message(Buffer.of(0x0a, 0xff, 0xff))),
      end: (code = Code.UNAVAILABLE) =>
        later(() => {
          end();
          handler.closed('no healthy upstream', code);
        }),
    };
    all?.add(control);
    return {
      write(bytes: Uint8Array) {
        const request = fromBinary(DeltaDiscoveryRequestSchema, bytes);
        if (request.responseNonce !== '' || answered.has(request.typeUrl)) return;
        answered.add(request.typeUrl);
        first = request;
        behaviours[endpoint]?.(request, control);
      },
      end,
      async finish() {
        end();
      },
    };
  }

  const upstream = new AdsUpstream(
    {
      name: 'central',
      claims: { authorities: [], types: [], names: [] },
      endpoints: Array.from(
        { length: count },
        (_, index) => ({ kind: 'tcp', host: 'a', port: index }) as const,
      ),
      protocol: 'DELTA',
      ...(part.services && { services: part.services }),
      variants: 'PER_PARAMETERS',
      tls: undefined,
      connectTimeoutMs: 5 * seconds,
      resourceTimeoutMs: part.resourceTimeoutMs ?? resourceTimeout,
      keepalive: { timeMs: 30 * seconds, timeoutMs: 10 * seconds },
      backoff: { initialMs: 500, maxMs: part.backoffMs ?? 30 * seconds },
      failbackAfterMs: 3600 * seconds,
      rules: [{ key: 'env', to: 'node.id' }],
      node: { id: 'r', cluster: 'r', metadata: {}, locality: { region: '', zone: '', subZone: '' } },
      version: '1',
      via: () => via,
      maxConstraintDepth: 8,
      maxSessions: () => 100,
      clock,
      random: part.random ?? (() => 0.5),
      log: quiet,
      metrics: {},
      transport: (address, handler): Channel => {
        const endpoint = address.kind === 'tcp' ? address.port : 0;
        connections[endpoint] = (connections[endpoint] ?? 0) + 1;
        seen.connects++;
        let isClosed = false;
        clock.after(1, () => {
          if (!isClosed) handler.connected();
        });
        return {
          open: (_, _via, streamHandler) => stream(endpoint, streamHandler),
          close: () => {
            isClosed = true;
            open[endpoint]?.clear();
          },
        };
      },
    },
    { apply: () => {}, restamp: () => {}, changed: () => (seen.down += upstream.state().down ? 1 : 0) },
  );
  upstream.start();
  return {
    clock,
    upstream,
    connections,
    seen,
    behave: (endpoint: number, behaviour: Behaviour): void => {
      behaviours[endpoint] = behaviour;
    },
    subscribe: (...interests: Interest[]) => {
      for (const interest of interests) upstream.subscribe(interest);
      clock.advance(seconds);
    },
    /** Ends the streams that are open, as an idle timeout does. */
    endAll: (endpoint: number): void => {
      for (const one of [...(open[endpoint] ?? [])]) one.end();
      clock.advance(2);
    },
    /** A relay more is below. */
    announce: (): void => {
      via += ',s';
      upstream.reannounce();
    },
    isOn: (endpoint: number): boolean => upstream.state().endpoint === `a:${endpoint}`,
  };
}

function nameOf(typeUrl: string | undefined): string {
  for (const name of ['lds', 'cds', 'rds', 'eds']) if (typeOf(name) === typeUrl) return name;
  throw new Error(`no test asks for ${typeUrl}`);
}

describe('§8.4 an endpoint that has worked and refuses each stream', () => {
  it('has failed after resource_timeout, and not before', () => {
    const { behave, subscribe, endAll, isOn, clock } = setting(2);
    subscribe(want('cds', '*'));
    behave(0, refuses);
    endAll(0);
    clock.advance(resourceTimeout - seconds);
    expect(isOn(0)).to.equal(true);
    clock.advance(resourceTimeout + seconds);
    expect(isOn(1)).to.equal(true);
  });

  it('is down if there is no other, until a stream has a response', () => {
    const { behave, subscribe, endAll, upstream, clock } = setting(1);
    subscribe(want('cds', '*'));
    behave(0, refuses);
    endAll(0);
    clock.advance(2 * resourceTimeout);
    expect(upstream.state()).to.include({ down: true, refusedStreams: 1 });
    clock.advance(300 * seconds);
    expect(upstream.state()).to.include({ down: true, refusedStreams: 1 });
    behave(0, (_, stream) => stream.answer());
    clock.advance(60 * seconds);
    expect(upstream.state()).to.include({ down: false, refusedStreams: 0, lastError: '', connected: true });
  });

  it('says why it is down, also when its last client leaves', () => {
    const { behave, subscribe, endAll, upstream, clock } = setting(1);
    const last = want('cds', '*');
    subscribe(last);
    behave(0, refuses);
    endAll(0);
    clock.advance(60 * seconds);
    upstream.unsubscribe(last);
    clock.advance(1);
    expect(upstream.state().lastError).to.match(/no healthy upstream$/);
  });

  it('is well again when it is silent about what is resumed', () => {
    const { behave, subscribe, endAll, upstream, clock } = setting(1);
    subscribe(want('eds', 'a'));
    behave(0, refuses);
    endAll(0);
    clock.advance(300 * seconds);
    expect(upstream.state()).to.include({ down: true, refusedStreams: 1 });
    behave(0, works);
    clock.advance(60 * seconds);
    expect(upstream.state()).to.include({ down: false, refusedStreams: 0, lastError: '' });
  });

  it('has failed with many sessions, too, whenever each of them is tried', () => {
    const { behave, subscribe, endAll, isOn, clock } = setting(2);
    subscribe(...Array.from({ length: 50 }, (_, index) => want('cds', '*', `env-${index}`)));
    behave(0, refuses);
    endAll(0);
    clock.advance(2 * resourceTimeout);
    expect(isOn(1)).to.equal(true);
  });

  it('has failed when it refuses after a connect timeout of a proxy', () => {
    const { behave, subscribe, endAll, isOn, clock } = setting(2, { backoffMs: 4 * seconds });
    subscribe(want('cds', '*'));
    behave(0, (_, stream) => clock.after(5 * seconds, () => stream.end()));
    endAll(0);
    clock.advance(2 * resourceTimeout);
    expect(isOn(1)).to.equal(true);
  });

  it('has failed when the only sessions that work there have left', () => {
    const { behave, subscribe, upstream, isOn, clock } = setting(2);
    const good = want('cds', '*', 'good');
    behave(0, (request, stream) => (request.node?.id === 'good' ? works : refuses)(request, stream));
    subscribe(good, want('cds', '*', 'bad'));
    clock.advance(120 * seconds);
    expect(isOn(0)).to.equal(true);
    upstream.unsubscribe(good);
    clock.advance(120 * seconds);
    expect(isOn(1)).to.equal(true);
  });

  for (const pause of [5, 14, 60])
    it(`has failed though a session more comes each ${pause} s`, () => {
      const { behave, subscribe, endAll, isOn, clock } = setting(2);
      subscribe(want('cds', '*'));
      clock.advance(60 * seconds);
      behave(0, refuses);
      endAll(0);
      for (let at = 0; at < 2 * resourceTimeout; at += pause * seconds) {
        subscribe(want('cds', '*', `env-${at}`));
        clock.advance((pause - 1) * seconds);
      }
      expect(isOn(1)).to.equal(true);
    });

  it('goes back and forth the more rarely, the oftener it works for a moment only', () => {
    const { behave, subscribe, connections, clock } = setting(2);
    behave(0, (request, stream) => {
      works(request, stream);
      clock.after(5, () => {
        stream.end();
        behave(0, refuses);
      });
    });
    subscribe(want('cds', '*'));
    clock.advance(24 * 3600 * seconds);
    expect(connections[1]).to.be.at.most(5);
  });
});

describe('§8.4 an endpoint has not failed', () => {
  for (const count of [1, 2]) {
    it(`when a proxy ends what is idle, with ${count} endpoints: what is resumed has nothing new`, () => {
      const { behave, subscribe, seen, clock } = setting(count);
      behave(0, (request, stream) => {
        works(request, stream);
        clock.after(10 * seconds, () => stream.end());
      });
      subscribe(want('eds', 'a'));
      clock.advance(3600 * seconds);
      expect(seen).to.deep.equal({ down: 0, connects: 1 });
    });
  }

  it('when it is away for less than resource_timeout, again and again', () => {
    const { behave, subscribe, endAll, seen, clock } = setting(2);
    subscribe(want('cds', '*'));
    for (let round = 0; round < 20; round++) {
      behave(0, refuses);
      endAll(0);
      clock.advance(7 * seconds);
      behave(0, works);
      clock.advance(60 * seconds);
    }
    expect(seen).to.deep.equal({ down: 0, connects: 1 });
  });

  it('when a request ends its streams, and what is left is resumed and has nothing new', () => {
    const { behave, subscribe, endAll, seen, clock } = setting(2);
    subscribe(want('eds', 'a'));
    endAll(0);
    clock.advance(60 * seconds);
    behave(0, (request, stream) => (ofType(request, 'rds') ? refuses : works)(request, stream));
    subscribe(want('rds', 'x'));
    clock.advance(600 * seconds);
    expect(seen).to.deep.equal({ down: 0, connects: 1 });
  });

  it('when a session is refused and another one has nothing new', () => {
    const { behave, subscribe, endAll, seen, clock } = setting(2);
    subscribe(want('eds', 'a', 'good'));
    endAll(0);
    behave(0, (request, stream) => (request.node?.id === 'good' ? works : refuses)(request, stream));
    subscribe(want('eds', 'a', 'bad'));
    clock.advance(600 * seconds);
    expect(seen).to.deep.equal({ down: 0, connects: 1 });
  });

  it('when it serves one type and says nothing to a wildcard of another, over ends and new streams', () => {
    const { behave, subscribe, endAll, announce, seen, clock } = setting(2);
    behave(0, (request, stream) => {
      if (!ofType(request, 'lds')) works(request, stream);
    });
    subscribe(want('eds', 'a'), want('lds', '*'));
    for (let round = 0; round < 20; round++) {
      clock.advance(60 * seconds);
      if (round % 2 === 0) endAll(0);
      else announce();
    }
    expect(seen).to.deep.equal({ down: 0, connects: 1 });
  });

  for (const pause of [5, 10, 30])
    it(`when a session is refused, and a relay more comes below each ${pause} s: the others go on`, () => {
      const { behave, subscribe, endAll, announce, seen, clock } = setting(2);
      subscribe(want('eds', 'a', 'good'));
      endAll(0);
      behave(0, (request, stream) => (request.node?.id === 'good' ? works : refuses)(request, stream));
      subscribe(want('eds', 'a', 'bad'));
      for (let round = 0; round < 40; round++) {
        announce();
        clock.advance(pause * seconds);
      }
      expect(seen).to.deep.equal({ down: 0, connects: 1 });
    });

  const missing = (stream: Stream): void => stream.end(Code.UNIMPLEMENTED);
  for (const [what, answer, services] of [
    ['when it has no such type', missing, undefined],
    ['with a service for each type, when it has not that one', missing, 'PER_TYPE'],
    ['when it answers for one type what cannot be read', (stream: Stream) => stream.babble(), undefined],
  ] as const)
    it(`${what}, and who asks for that is alone`, () => {
      const { behave, subscribe, upstream, seen, clock } = setting(1, services && { services });
      const good = want('cds', '*');
      behave(0, (request, stream) => {
        if (ofType(request, 'rds')) answer(stream);
        else works(request, stream);
      });
      subscribe(good);
      subscribe(want('rds', 'x'));
      clock.advance(60 * seconds);
      upstream.unsubscribe(good);
      clock.advance(3600 * seconds);
      expect(seen).to.deep.equal({ down: 0, connects: 1 });
    });

  it('when a proxy ends idle streams after a minute, and resource_timeout is longer', () => {
    const { behave, subscribe, seen, clock } = setting(2, { resourceTimeoutMs: 150 * seconds });
    behave(0, (request, stream) => {
      works(request, stream);
      clock.after(60 * seconds, () => stream.end());
    });
    subscribe(want('eds', 'a'));
    clock.advance(3600 * seconds);
    expect(seen).to.deep.equal({ down: 0, connects: 1 });
  });

  it('when it is back after an outage with nothing new, and a proxy ends what is idle', () => {
    const { behave, subscribe, endAll, seen, clock } = setting(1);
    subscribe(want('eds', 'a'));
    behave(0, refuses);
    endAll(0);
    clock.advance(120 * seconds);
    behave(0, (request, stream) => {
      works(request, stream);
      clock.after(60 * seconds, () => stream.end());
    });
    clock.advance(180 * seconds);
    const before = { ...seen };
    clock.advance(3600 * seconds);
    expect(seen).to.deep.equal(before);
  });

  // A session that is refused for ever is beside it. Its refusals are no evidence.
  const goodBeside =
    (good: Behaviour): Behaviour =>
    (request, stream) =>
      (request.node?.id === 'good' ? good : refuses)(request, stream);
  const jitterOf = (seed: number): (() => number) => {
    const random = new Random(seed);
    return () => random.next();
  };

  it('when a response of the others could not be read once', () => {
    const { behave, subscribe, endAll, seen, clock } = setting(2);
    subscribe(want('cds', '*', 'good'));
    behave(0, goodBeside(works));
    subscribe(want('cds', '*', 'bad'));
    clock.advance(60 * seconds);
    let isFirst = true;
    behave(
      0,
      goodBeside((_, stream) => {
        if (isFirst) stream.babble();
        else stream.answer();
        isFirst = false;
      }),
    );
    endAll(0);
    clock.advance(600 * seconds);
    expect(seen).to.deep.equal({ down: 0, connects: 1 });
  });

  for (const outage of [5, 10, 13])
    it(`when it is away for ${outage} s, though a session beside is refused for ever`, () => {
      for (let seed = 1; seed <= 20; seed++) {
        const { behave, subscribe, endAll, seen, clock } = setting(2, { random: jitterOf(seed) });
        subscribe(want('eds', 'a', 'good'));
        endAll(0);
        behave(0, goodBeside(works));
        subscribe(want('eds', 'a', 'bad'));
        clock.advance(300 * seconds);
        behave(0, refuses);
        endAll(0);
        clock.advance(outage * seconds);
        behave(0, goodBeside(works));
        clock.advance(120 * seconds);
        expect(seen, `seed ${seed}`).to.deep.equal({ down: 0, connects: 1 });
      }
    });

  for (const life of [8, 20, 29])
    it(`when its streams end after ${life} s, though a session beside is refused for ever`, () => {
      for (const type of ['eds', 'cds'])
        for (let seed = 1; seed <= 5; seed++) {
          const { behave, subscribe, seen, clock } = setting(2, { random: jitterOf(seed) });
          const ends: Behaviour = (request, stream) => {
            if (type === 'cds') stream.answer();
            else works(request, stream);
            clock.after(life * seconds, () => stream.end());
          };
          behave(0, goodBeside(ends));
          const name = type === 'cds' ? '*' : 'a';
          subscribe(want(type, name, 'good'), want(type, name, 'bad'));
          clock.advance(3600 * seconds);
          expect(seen, `seed ${seed}`).to.deep.equal({ down: 0, connects: 1 });
        }
    });
});

describe('§5c.6 a control plane without load reports', () => {
  it('is asked again after 5 minutes, and its other streams stay', () => {
    const { behave, subscribe, upstream, seen, clock } = setting(1);
    let asked = 0;
    behave(0, (request, stream) => {
      // A report has a node, and no type.
      if (request.typeUrl !== '') works(request, stream);
      else {
        asked++;
        stream.end(Code.UNIMPLEMENTED);
      }
    });
    subscribe(want('cds', '*'));
    const { parameters } = want('cds', '*');
    const handler = { origin: () => itsOwn, asked: () => {}, down: () => {} };
    upstream.openLoadStream({ upstream: 'central', parameters }, handler);
    clock.advance(299 * seconds);
    expect(asked).to.equal(1);
    clock.advance(2 * seconds);
    expect(asked).to.equal(2);
    clock.advance(3600 * seconds);
    expect(asked).to.equal(14);
    expect(seen).to.deep.equal({ down: 0, connects: 1 });
  });
});
