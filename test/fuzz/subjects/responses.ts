import type { Log } from '../../../src/observe/log.ts';
import { AdsUpstream } from '../../../src/upstream/ads/ads-upstream.ts';
import type {
  ChannelHandler,
  ChannelStreamHandler,
  Transport,
} from '../../../src/upstream/ads/grpc-channel.ts';
import { InMemoryRelay, type } from '../../support/in-memory-relay.ts';
import { contentOf, deltaResponse, parseItem, sotwResponse } from '../../upstream/ads/responses.ts';
import type { Subject, Trial } from '../subject.ts';

type Encode = typeof sotwResponse;

const encoders: Record<'sotw' | 'delta', Encode> = { sotw: sotwResponse, delta: deltaResponse };
const items = [
  ['a:one', 'b:two@7'],
  ['a{env=prod&!version}:one', 'a{env=test}:two~5000', 'b:three|alias'],
  ['c:three', '-a{env=prod}', '-b'],
  ['!d:NOT_FOUND', 'e', 'f:four#eds'],
];
const corpora = {
  sotw: items.map((list) =>
    sotwResponse(type('cds'), '1', '1', list.filter((item) => !item.startsWith('-')).map(parseItem)),
  ),
  delta: items.map((list) => deltaResponse(type('cds'), '1', '1', list.map(parseItem))),
};

/** Responses of a control plane, to a relay that has a client; afterwards a well-formed one must reach that client. */
export function responses(protocol: 'sotw' | 'delta'): Subject {
  return {
    name: `${protocol} responses`,
    corpus: corpora[protocol],
    open: () => new ResponseTrial(protocol),
  };
}

const silent: Log = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => silent,
};

/** A control plane that says what it is told to, on whatever stream is open. */
class ScriptedPlane {
  readonly streams = new Set<ChannelStreamHandler>();

  readonly dial: Transport = (_endpoint, handler: ChannelHandler) => {
    this.#connect = () => handler.connected();
    return {
      open: (_path, _via, stream) => {
        this.streams.add(stream);
        const end = () => this.streams.delete(stream);
        return { write: () => undefined, end, finish: async () => void end() };
      },
      close: () => this.streams.clear(),
    };
  };

  #connect = (): void => undefined;

  connect(): void {
    this.#connect();
  }

  say(bytes: Buffer): void {
    for (const stream of [...this.streams]) {
      let reading = stream.message(Buffer.from(bytes));
      while (reading) reading = stream.proceed();
    }
  }
}

class ResponseTrial implements Trial {
  readonly #lab = new InMemoryRelay({ rules: [] });
  readonly #plane = new ScriptedPlane();
  readonly #client = this.#lab.delta();
  readonly #protocol: 'sotw' | 'delta';
  #serial = 0;

  constructor(protocol: 'sotw' | 'delta') {
    this.#protocol = protocol;
    const { relay, clock } = this.#lab;
    const upstream = new AdsUpstream(
      {
        name: 'script',
        claims: { authorities: [], types: [], names: [] },
        endpoints: [{ kind: 'unix', path: 'plane' }],
        protocol: protocol === 'sotw' ? 'SOTW' : 'DELTA',
        variants: 'NATIVE',
        transport: this.#plane.dial,
        tls: undefined,
        connectTimeoutMs: 1000,
        resourceTimeoutMs: 15_000,
        keepalive: { timeMs: 30_000, timeoutMs: 10_000 },
        backoff: { initialMs: 10, maxMs: 40 },
        failbackAfterMs: 100,
        rules: [],
        node: { id: 'relay', cluster: '', metadata: {}, locality: { region: '', zone: '', subZone: '' } },
        version: '1',
        via: () => 'relay/1',
        maxConstraintDepth: 64,
        maxSessions: () => 10,
        clock,
        random: () => 0.5,
        log: silent,
        metrics: {
          accepted: () => undefined,
          rejected: () => undefined,
          reconnect: () => undefined,
          streamEnd: () => undefined,
          refused: () => undefined,
        },
      },
      {
        apply: (transaction) => relay.apply(transaction),
        restamp: (restamp) => relay.restamp(restamp),
        changed: () => relay.changed(),
      },
    );
    relay.replace([upstream]);
    this.#plane.connect();
    this.#client.send('cds', {});
    this.#pass();
  }

  take(bytes: Buffer): void {
    this.#plane.say(bytes);
    this.#pass();
    const content = `new-${++this.#serial}`;
    const proof = encoders[this.#protocol](type('cds'), content, content, [parseItem(`proof:${content}`)]);
    this.#plane.say(proof);
    this.#pass();
    const got = this.#client.received().flatMap(({ resources: list }) => list);
    const shown = got.findLast(({ name }) => name === 'proof')?.resource?.value;
    if (contentOf(shown) !== content) throw new Error('the next update did not reach the client');
    this.#client.inbox.length = 0;
  }

  /** Streams that were ended are open again; what was deferred has happened. */
  #pass(): void {
    this.#lab.settle();
    this.#lab.clock.advance(100);
    this.#lab.settle();
  }

  settle(): void {
    this.#plane.say(encoders[this.#protocol](type('cds'), 'end', 'end', []));
    this.#lab.clock.advance(3_600_000);
    this.#pass();
    this.#lab.events.length = 0;
    this.#lab.ambiguous.length = 0;
    this.#lab.evicted.length = 0;
  }
}
