import { expect } from 'chai';
import { revision } from '../../src/model/brand.ts';
import type { Commit } from '../../src/model/catalog.ts';
import { transaction } from '../../src/model/transaction.ts';
import { parentOf } from '../../src/observe/otlp-spans.ts';
import { type Attributes, type Spans, UpdateTraces } from '../../src/observe/update-traces.ts';
import { type } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

interface Ended {
  readonly name: string;
  readonly from: number;
  readonly until: number;
  readonly attributes: Attributes;
}

/** The spans that have ended, children before the first of their trace. */
class RecordedSpans implements Spans {
  readonly ended: Ended[] = [];
  started = 0;

  start(name: string, from: number, attributes: Attributes) {
    this.started++;
    return {
      child: (child: string, begin: number, until: number, more: Attributes = {}) => {
        this.ended.push({ name: child, from: begin, until, attributes: more });
      },
      end: (until: number, more: Attributes = {}) => {
        this.ended.push({ name, from, until, attributes: { ...attributes, ...more } });
      },
    };
  }

  async stop(): Promise<void> {}

  named(name: string): readonly Ended[] {
    return this.ended.filter((span) => span.name === name);
  }
}

class TracedUpdates {
  readonly clock = new VirtualClock();
  readonly spans = new RecordedSpans();
  readonly traces = new UpdateTraces(this.spans, this.clock);
  #last = 0;

  /** An update that reaches views of so many subscribers each. */
  update(...subscribers: readonly number[]): Commit {
    const arrivedAt = this.clock.monotonic();
    const holder = { key: 'k', upstream: 'central', role: 'wildcard' } as const;
    const commit: Commit = {
      revision: revision(++this.#last),
      type: type('cds'),
      version: '1',
      // Distinct: the clock stands still.
      receivedAt: arrivedAt + this.#last / 1e6,
      changed: new Map(),
      resolved: [],
    };
    this.traces.applied(transaction({ holder, type: commit.type, arrivedAt }), commit, arrivedAt);
    for (const count of subscribers) this.traces.reaches(commit, count);
    this.traces.published(commit);
    return commit;
  }

  get roots(): readonly Attributes[] {
    return this.spans.named('update').map(({ attributes }) => attributes);
  }
}

describe('traces of updates: when they end', () => {
  it('with the last answer, ACK or NACK', () => {
    const relay = new TracedUpdates();
    const { traces, clock } = relay;
    const { receivedAt } = relay.update(2, 1);
    for (const accepted of [true, false, true]) {
      expect(relay.roots).to.be.empty;
      clock.advance(10);
      traces.handedOver(receivedAt);
      clock.advance(10);
      traces.answered(receivedAt, accepted);
    }
    expect(relay.roots[0]).to.include({
      'distributary.end': 'answered',
      'distributary.classes': 2,
      'distributary.subscribers': 3,
      'distributary.accepted': 2,
      'distributary.rejected': 1,
    });
    const [handover] = relay.spans.named('hand over');
    const [answer] = relay.spans.named('answer');
    expect((handover?.until ?? 0) - (handover?.from ?? 0)).to.equal(40);
    expect((answer?.until ?? 0) - (answer?.from ?? 0)).to.equal(50);
  });

  it('at once where nobody subscribes', () => {
    const relay = new TracedUpdates();
    relay.update();
    expect(relay.roots[0]).to.include({ 'distributary.end': 'no_subscribers' });
  });

  it('at a deadline where clients never answer; what they say later is not counted', () => {
    const relay = new TracedUpdates();
    const { receivedAt } = relay.update(2);
    relay.traces.handedOver(receivedAt);
    relay.traces.answered(receivedAt, true);
    relay.clock.advance(29_999);
    expect(relay.roots).to.be.empty;
    relay.clock.advance(1);
    relay.traces.answered(receivedAt, true);
    expect(relay.roots).to.have.length(1);
    expect(relay.roots[0]).to.include({ 'distributary.end': 'deadline', 'distributary.accepted': 1 });
  });

  it('when the relay refuses the response', () => {
    const { traces, spans, clock } = new TracedUpdates();
    const arrivedAt = clock.monotonic();
    clock.advance(7);
    traces.refused('central', type('cds'), arrivedAt);
    expect(spans.ended.map(({ name, from, until }) => [name, until - from])).to.deep.equal([
      ['judge', 7],
      ['update', 7],
    ]);
    expect(spans.named('update')[0]?.attributes).to.include({ 'distributary.end': 'refused' });
  });

  it('when the relay stops', async () => {
    const relay = new TracedUpdates();
    relay.update(1);
    await relay.traces.stop();
    expect(relay.roots[0]).to.include({ 'distributary.end': 'shutdown' });
  });
});

describe('traces of updates: their bounds', () => {
  it('100 are open at a time, and later updates have none until one ends', () => {
    const relay = new TracedUpdates();
    const [first] = Array.from({ length: 250 }, () => relay.update(1));
    expect(relay.spans.started).to.equal(100);
    relay.traces.handedOver(first?.receivedAt ?? 0);
    relay.traces.answered(first?.receivedAt ?? 0, true);
    relay.update(1);
    relay.update(1);
    expect(relay.spans.started).to.equal(101);
  });

  it('32 spans of composed responses; the count has all', () => {
    const relay = new TracedUpdates();
    const { receivedAt } = relay.update(1);
    for (let view = 0; view < 1000; view++) relay.traces.composed(receivedAt, relay.clock.monotonic(), 10);
    relay.clock.advance(30_000);
    expect(relay.spans.named('compose')).to.have.length(32);
    expect(relay.roots[0]).to.include({ 'distributary.composed': 1000 });
  });

  it('what no response is behind has no trace', () => {
    const { traces, spans, clock } = new TracedUpdates();
    const holder = { key: 'k', upstream: 'central', role: 'named' } as const;
    const said = transaction({ holder, type: type('cds'), unwanted: true });
    const receivedAt = clock.monotonic();
    const commit: Commit = {
      revision: revision(1),
      type: type('cds'),
      version: '',
      receivedAt,
      changed: new Map(),
      resolved: [],
    };
    traces.applied(said, commit, receivedAt);
    expect(spans.started).to.equal(0);
  });
});

describe('traceparent', () => {
  const [trace, span] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331'];

  it('names the trace, the span above, and whether it is sampled', () => {
    expect(parentOf(`00-${trace}-${span}-01`)).to.include({ traceId: trace, spanId: span, traceFlags: 1 });
    expect(parentOf(`00-${trace}-${span}-02`)).to.include({ traceFlags: 0 });
    expect(parentOf(`cc-${trace}-${span}-01-later`), 'a later version').to.include({ traceId: trace });
  });

  for (const bad of [
    undefined,
    '',
    `00-${trace}-${span}`,
    `ff-${trace}-${span}-01`,
    `00-${trace.toUpperCase()}-${span}-01`,
    `00-${'0'.repeat(32)}-${span}-01`,
    `00-${trace}-${'0'.repeat(16)}-01`,
    `00-${trace}-${span}-01x`,
  ]) {
    it(`${JSON.stringify(bad)} is none`, () => expect(parentOf(bad)).to.equal(undefined));
  }
});
