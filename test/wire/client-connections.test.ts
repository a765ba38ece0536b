import { once } from 'node:events';
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from 'node:http2';
import { connect as connectTcp, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import type { GrpcServer } from '../../src/wire/http2-server.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { closeServers, serve } from './serve.ts';

const grpcHeaders = {
  ':method': 'POST',
  ':path': '/a.Service/Method',
  'content-type': 'application/grpc',
  te: 'trailers',
};
const minute = 60_000;

describe('connections', () => {
  let clock: VirtualClock;
  let server: GrpcServer;
  const opened: (ClientHttp2Session | Socket)[] = [];

  beforeEach(async () => {
    clock = new VirtualClock();
    server = await serve({ clock });
  });

  afterEach(async () => {
    for (const one of opened.splice(0)) one.destroy();
    await closeServers();
  });

  async function session(): Promise<ClientHttp2Session> {
    const made = connect(`http://${server.address}`);
    made.on('error', () => undefined);
    opened.push(made);
    await once(made, 'remoteSettings');
    return made;
  }

  async function tcp(): Promise<Socket> {
    const [host = '', port = ''] = server.address.split(':');
    const made = connectTcp({ host, port: Number(port), allowHalfOpen: true });
    opened.push(made);
    await once(made, 'data'); // the server's SETTINGS
    return made;
  }

  /** A call that the server has. */
  async function open(on: ClientHttp2Session): Promise<ClientHttp2Stream> {
    const call = on.request(grpcHeaders);
    call.write(Buffer.from([0, 0, 0, 0, 0]));
    await once(call, 'data');
    return call;
  }

  it('one without a stream ends after a minute, one with a stream stays', async () => {
    const idle = await session();
    const busy = await session();
    await open(busy);
    const ended = once(idle, 'close');
    clock.advance(2 * minute);
    await ended;
    expect(busy.closed).to.equal(false);
    expect(server.connections).to.equal(1);
  });

  it('a minute counts from the end of its last stream', async () => {
    const used = await session();
    const call = await open(used);
    call.resume();
    clock.advance(minute);
    call.end();
    await once(call, 'close');
    const other = await session();
    clock.advance(minute - 20_000);
    await open(other); // what the server did before this has arrived
    expect(used.closed).to.equal(false);
    const ended = once(used, 'close');
    clock.advance(30_000);
    await ended;
  });

  describe('xds.max_connection_age', () => {
    let oldest: number | undefined;

    beforeEach(async () => {
      server = await serve({ clock, maxConnectionAge: () => oldest, random: () => 0.5 });
    });

    /** With a call. It has answered `more` when the server has done what was to be done before. */
    async function inUse() {
      const used = await session();
      const call = await open(used);
      const trailers = once(call.resume(), 'trailers');
      return { used, call, trailers, more: () => open(used) };
    }

    it('is for connections that are open when it is set, and lowered: they end one after the other', async () => {
      oldest = undefined;
      const one = await inUse();
      clock.advance(10 * minute);
      oldest = 20 * minute;
      clock.advance(9 * minute);
      await one.more();
      oldest = 5 * minute;
      clock.advance(30_000);
      await one.more();
      const ended = once(one.used, 'close');
      clock.advance(15_000);
      const [{ 'grpc-status': status }] = (await one.trailers) as [Record<string, string>];
      expect(status).to.equal('14');
      clock.advance(minute);
      await ended;
    });

    it('is not for those that are open when it is raised or taken away', async () => {
      oldest = minute;
      const one = await inUse();
      for (const longer of [10 * minute, undefined]) {
        oldest = longer;
        clock.advance(5 * minute);
        await one.more();
      }
      clock.advance(20 * minute);
      await one.more();
      expect(one.used.closed).to.equal(false);
    });

    it('does not put off the end of a connection that has begun to end', async () => {
      oldest = minute;
      const one = await inUse();
      clock.advance(minute);
      oldest = undefined;
      const ended = once(one.used, 'close');
      clock.advance(minute);
      await ended;
    });
  });

  it('one that never says anything, and does not close when it is told to, is cut', async () => {
    const silent = await tcp();
    silent.resume();
    const told = once(silent, 'end');
    clock.advance(minute);
    await told;
    expect(server.connections).to.equal(1);
    clock.advance(10_000);
    while (server.connections > 0) await setImmediate();
    expect(silent.destroyed).to.equal(false);
  });
});
