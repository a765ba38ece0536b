import { expect } from 'chai';
import type { Config } from '../../src/config/config.ts';
import { parseConfig } from '../../src/config/load.ts';
import { resourceName } from '../../src/model/brand.ts';
import { internParameters } from '../../src/model/parameters.ts';
import { Selection } from '../../src/model/selection.ts';
import { typeInfo } from '../../src/model/types.ts';
import { SessionShares } from '../../src/session-shares.ts';
import type { Peer } from '../../src/wire/server-stream.ts';
import { type } from '../support/in-memory-relay.ts';
import { testAccounts, testPeer } from '../support/peers.ts';

const accounts = testAccounts();
const at = (address: string): Peer => testPeer({ address: `${address}:4000` }, accounts);

function configOf({
  sessions = 32,
  workers = 0,
  upstreams = '',
  parameters = '[{ key: env, from: node.id }]',
}) {
  const text = `
upstreams:
  ${upstreams}
  - { name: central, ads: { endpoints: ["cp:1"] } }
parameters: ${parameters}
limits: { max_upstream_sessions: ${sessions} }
workers: ${workers}
`;
  const config = parseConfig(text, 'test.yaml', {});
  if (!config.ok) throw new Error(JSON.stringify(config.error));
  return config.value;
}

/** A selection with these values of env, and of a parameter of which no rule knows. */
function withEnvs(envs: readonly string[], name = 'a', short = 'eds') {
  const selected = envs.map((env, index) => ({
    selector: resourceName(name),
    requestedName: name,
    locator: true,
    parameters: internParameters([
      ['env', env],
      ['other', String(index)],
    ]),
    locatorParameters: undefined,
  }));
  return [{ info: typeInfo(type(short)), selection: Selection.of(selected) }];
}

const range = (prefix: string, count: number) => Array.from({ length: count }, (_, at) => `${prefix}${at}`);

/** Streams that take shares. */
class Streams extends SessionShares {
  of({ account }: Peer) {
    const stream = {};
    let taken = 0;
    return {
      take: (subscribed: ReturnType<typeof withEnvs>): string | undefined => {
        const added = this.take(stream, account, subscribed);
        if (typeof added === 'string') return added;
        taken += added;
        return undefined;
      },
      taken: () => {
        const before = taken;
        taken = 0;
        return before;
      },
      release: () => this.release(stream),
    };
  }
}

describe('shares of the upstream sessions', () => {
  const shares = (options: Parameters<typeof configOf>[0] = {}) => new Streams(configOf(options));

  it('a stream may use a quarter, and is told what it may do', () => {
    const stream = shares().of(at('10.0.0.1'));
    expect(stream.take(withEnvs(range('e', 8)))).to.equal(undefined);
    expect(stream.take(withEnvs(range('e', 9))))
      .to.include('9 parameter sets: at most 8')
      .and.to.include('limits.max_upstream_sessions')
      .and.to.include('parameters[].values')
      .and.to.include('limits.relay_peers');
  });

  it('what a stream takes anew is counted once', () => {
    const stream = shares().of(at('10.0.0.1'));
    stream.take(withEnvs(range('e', 4)));
    expect([stream.taken(), stream.taken()]).to.deep.equal([4, 0]);
    stream.take(withEnvs(range('e', 2)));
    expect(stream.taken(), 'fewer').to.equal(0);
    stream.take(withEnvs(['e0', 'new']));
    expect(stream.taken(), 'one more').to.equal(1);
    stream.take(withEnvs(range('x', 9)));
    expect(stream.taken(), 'too many').to.equal(0);
  });

  it('a peer may use half, over all its streams; other peers have their own', () => {
    const all = shares();
    const [one, two, three] = [1, 2, 3].map(() => all.of(at('10.0.0.1')));
    expect(one?.take(withEnvs(range('a', 8)))).to.equal(undefined);
    expect(two?.take(withEnvs(range('b', 8)))).to.equal(undefined);
    expect(three?.take(withEnvs(['c']))).to.include('10.0.0.1 uses 17 parameter sets: at most 16');
    expect(three?.take(withEnvs(['a0', 'b0'])), 'what it uses already').to.equal(undefined);
    expect(all.of(at('10.0.0.2')).take(withEnvs(['c']))).to.equal(undefined);
    two?.release();
    expect(three?.take(withEnvs(['a0', 'c']))).to.equal(undefined);
  });

  it('one set in the place of another is no more than before', () => {
    const all = shares();
    const streams = range('', 16).map(() => all.of(at('10.0.0.1')));
    for (const [index, stream] of streams.entries())
      expect(stream.take(withEnvs([`e${index}`]))).to.equal(undefined);
    for (const [index, stream] of streams.entries())
      expect(stream.take(withEnvs([`f${index}`]))).to.equal(undefined);
    expect(all.of(at('10.0.0.1')).take(withEnvs(['e0']))).to.include('17 parameter sets');
  });

  it('where there are few, a stream may use eight, and a peer sixteen', () => {
    const all = shares({ sessions: 2 });
    expect(all.of(at('10.0.0.1')).take(withEnvs(['a', 'b']))).to.equal(undefined);
    expect(all.of(at('10.0.0.1')).take(withEnvs(['c'])), 'the upstream says that it is full').to.equal(
      undefined,
    );
    const twenty = shares({ sessions: 20 });
    const [one, two, three] = [1, 2, 3].map(() => twenty.of(at('10.0.0.1')));
    expect(one?.take(withEnvs(range('e', 9)))).to.include('at most 8');
    expect(one?.take(withEnvs(range('a', 8)))).to.equal(undefined);
    expect(two?.take(withEnvs(range('b', 8)))).to.equal(undefined);
    expect(three?.take(withEnvs(['c']))).to.include('at most 16');
    for (const sessions of [3, 5, 8]) {
      const stream = shares({ sessions }).of(at('10.0.0.1'));
      expect(stream.take(withEnvs(range('e', sessions))), `${sessions} sessions`).to.equal(undefined);
    }
    expect(
      shares({ sessions: 1 })
        .of(at('10.0.0.1'))
        .take(withEnvs(['a', 'b'])),
    ).to.include('at most 1');
  });

  it('each worker counts for itself: a peer has its part of the half in each', () => {
    const all = shares({ sessions: 160, workers: 4 });
    expect(all.of(at('10.0.0.1')).take(withEnvs(range('a', 20)))).to.equal(undefined);
    expect(all.of(at('10.0.0.1')).take(withEnvs(['b']))).to.include(
      'at most 20 are accepted of one peer in each of 4 workers',
    );
  });

  it('all workers together give a peer no more than half, or sixteen, and each one at least one', () => {
    for (const [sessions, workers, each] of [
      [17, 2, 8],
      [32, 2, 8],
      [100, 8, 6],
      [100, 64, 1],
      [1000, 64, 7],
    ] as const) {
      const worker = shares({ sessions, workers });
      const takes = (env: string): string | undefined => worker.of(at('10.0.0.1')).take(withEnvs([env]));
      const refused = range('e', each + 1).map(takes);
      const name = `${sessions} sessions, ${workers} workers`;
      expect(refused.slice(0, each), name).to.deep.equal(Array(each).fill(undefined));
      expect(refused.at(-1), name).to.include(`at most ${each} are accepted`);
    }
    const few = shares({ sessions: 16, workers: 8 });
    for (const half of ['a', 'b'])
      expect(few.of(at('10.0.0.1')).take(withEnvs(range(half, 8))), 'the limit itself').to.equal(undefined);
  });

  it('what makes no session of its own does not count', () => {
    const native = '- { name: tp2, types: [cds], ads: { endpoints: ["cp:2"], variants: NATIVE } }';
    const files = '- { name: files, names: ["file-*"], filesystem: { path: x } }';
    for (const [upstreams, name, short] of [
      [native, 'a', 'cds'],
      [files, 'file-a', 'eds'],
    ] as const) {
      const stream = shares({ upstreams }).of(at('10.0.0.1'));
      expect(stream.take(withEnvs(range('e', 9), name, short)), name).to.equal(undefined);
      expect(stream.take(withEnvs(range('e', 9)))).to.include('9 parameter sets');
    }
    const noRules = shares({ parameters: '[]' }).of(at('10.0.0.1'));
    expect(noRules.take(withEnvs(range('e', 9)))).to.equal(undefined);
    const otherRule = shares({ parameters: '[{ key: zone, from: node.id }]' }).of(at('10.0.0.1'));
    expect(otherRule.take(withEnvs(range('e', 9)))).to.equal(undefined);
  });

  it('after a reload everything is counted anew', () => {
    const all = shares();
    const [one, two] = [all.of(at('10.0.0.1')), all.of(at('10.0.0.1'))];
    one.take(withEnvs(range('a', 8)));
    two.take(withEnvs(range('b', 8)));
    const larger: Config = configOf({ sessions: 64 });
    all.reload(larger);
    expect(one.take(withEnvs(range('a', 16)))).to.equal(undefined);
    expect(two.take(withEnvs(range('b', 16)))).to.equal(undefined);
    expect(all.of(at('10.0.0.1')).take(withEnvs(['c']))).to.include('33 parameter sets: at most 32');
    one.release();
    two.release();
    expect(all.of(at('10.0.0.1')).take(withEnvs(range('c', 16)))).to.equal(undefined);
  });
});
