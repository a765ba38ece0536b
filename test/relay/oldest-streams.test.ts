import { expect } from 'chai';
import { parseConfig } from '../../src/config/load.ts';
import { Core } from '../../src/core.ts';
import { fetchRoutes } from '../../src/downstream/polls/polls.ts';
import { routes } from '../../src/downstream/xds-server.ts';
import { LOAD_PATH } from '../../src/model/load.ts';
import { createLog } from '../../src/observe/log.ts';
import { Code, type GrpcStatus } from '../../src/wire/grpc-status.ts';
import type { Peer, ServerStream, StreamHandler } from '../../src/wire/server-stream.ts';
import { testPeer } from '../support/peers.ts';

/** Remembers whether it was ended. */
class Stream implements ServerStream {
  readonly path: string;
  readonly peer: Peer;
  readonly waitedMilliseconds = 0;
  status: GrpcStatus | undefined;
  #handler: StreamHandler | undefined;

  constructor(path: string, peer = testPeer()) {
    this.path = path;
    this.peer = peer;
  }

  header(): undefined {}
  pause(): void {}
  resume(): void {}
  write = (): boolean => true;
  handle(handler: StreamHandler): void {
    this.#handler = handler;
  }
  end(status: GrpcStatus): void {
    this.status ??= status;
    this.#handler?.closed();
  }
}

function coreOf(more = ''): Core {
  const text = `upstreams: [{ name: a, ads: { endpoints: ["cp:1"] }, load_reports: AGGREGATE }]${more}`;
  const config = parseConfig(text, 'configuration', {});
  if (!config.ok) throw new Error(JSON.stringify(config.error));
  const log = createLog({ level: 'silent' });
  return new Core(config.value, { log, logLevels: undefined, version: '', processMetrics: false });
}

const [route] = routes.values();
const [fetched] = fetchRoutes.values();
if (route === undefined || fetched === undefined) throw new Error('there is no route');

describe('streams that workers took beyond limits.max_streams', () => {
  it('end, the newest first, and before those that serve clients those that report load', () => {
    const core = coreOf();
    const xds = [1, 2, 3].map(() => new Stream('xds'));
    const reports = [1, 2].map(() => new Stream(LOAD_PATH));
    for (const stream of xds) core.relay.server.accept(stream, route);
    for (const stream of reports) core.acceptReports(stream);
    expect(core.streams).to.equal(5);
    const open = () => [xds, reports].map((all) => all.map(({ status }) => status === undefined));
    core.keepOldestStreams(4);
    expect(open()).to.deep.equal([
      [true, true, true],
      [true, false],
    ]);
    core.keepOldestStreams(2);
    expect(open()).to.deep.equal([
      [true, true, false],
      [false, false],
    ]);
    expect(core.streams).to.equal(2);
  });
});

describe('calls of Fetch', () => {
  const code = ({ status }: Stream) => status?.code;

  it('have places of limits.max_streams while they are open, and lose them first', () => {
    const core = coreOf('\nlimits: { max_streams: 3 }');
    const calls = [1, 2, 3, 4].map(() => new Stream('fetch'));
    for (const call of calls) core.relay.fetch(call, fetched);
    const exhausted = Code.RESOURCE_EXHAUSTED;
    expect(calls.map(code)).to.deep.equal([undefined, undefined, undefined, exhausted]);
    const stream = new Stream('xds');
    expect(core.relay.server.accept(stream, route)?.code).to.equal(exhausted);
    calls[0]?.end({ code: Code.OK, message: '' });
    expect(core.relay.server.accept(stream, route)).to.equal(undefined);
    expect(core.openStreams).to.equal(3);
    core.keepOldestStreams(2);
    expect([stream, ...calls].map(code)).to.deep.equal([undefined, Code.OK, undefined, exhausted, exhausted]);
    expect(core.openStreams).to.equal(2);
  });

  it('and of limits.max_streams_per_peer', () => {
    const core = coreOf('\nlimits: { max_streams_per_peer: 1 }');
    const peer = testPeer();
    const calls = [1, 2].map(() => new Stream('fetch', peer));
    for (const call of calls) core.relay.fetch(call, fetched);
    expect(calls.map(code)).to.deep.equal([undefined, Code.RESOURCE_EXHAUSTED]);
    calls[0]?.end({ code: Code.OK, message: '' });
    expect(peer.account.count('streams')).to.equal(0);
  });
});
