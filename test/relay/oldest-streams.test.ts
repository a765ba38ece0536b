import { expect } from 'chai';
import { Core } from '../../src/core.ts';
import { parseConfig } from '../../src/config/load.ts';
import { routes } from '../../src/downstream/xds-server.ts';
import { LOAD_PATH } from '../../src/model/load.ts';
import { createLog } from '../../src/observe/log.ts';
import type { GrpcStatus } from '../../src/wire/grpc-status.ts';
import type { Peer, ServerStream, StreamHandler } from '../../src/wire/server-stream.ts';
import { testPeer } from '../support/peers.ts';

/** Remembers whether it was ended. */
class Stream implements ServerStream {
  readonly path: string;
  readonly peer: Peer = testPeer();
  readonly waitedMilliseconds = 0;
  status: GrpcStatus | undefined;
  #handler: StreamHandler | undefined;

  constructor(path: string) {
    this.path = path;
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

describe('streams that workers took beyond limits.max_streams', () => {
  it('end, the newest first, and before those that serve clients those that report load', () => {
    const text = 'upstreams: [{ name: a, ads: { endpoints: ["cp:1"] }, load_reports: AGGREGATE }]';
    const config = parseConfig(text, 'configuration', {});
    if (!config.ok) throw new Error(JSON.stringify(config.error));
    const log = createLog({ level: 'silent' });
    const core = new Core(config.value, { log, logLevels: undefined, version: '', processMetrics: false });
    const [route] = routes.values();
    if (route === undefined) throw new Error('there is no route');
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
