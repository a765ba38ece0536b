import { expect } from 'chai';
import { systemClock } from '../../../src/model/clock.ts';
import { LOAD_PATH } from '../../../src/model/load.ts';
import { grpcTransport } from '../../../src/upstream/ads/grpc-channel.ts';
import { LoadPlane } from '../../e2e/support/load-plane.ts';

describe('a stream to a control plane that is finished', () => {
  it('says what was written before it is over', async () => {
    await using plane = await new LoadPlane().listen();
    const [host = '', port] = plane.address.split(':');
    const transport = grpcTransport({
      tls: undefined,
      connectTimeoutMs: 10_000,
      keepalive: { timeMs: 60_000, timeoutMs: 60_000 },
      clock: systemClock,
    });
    const connected = Promise.withResolvers<void>();
    const handler = { connected: connected.resolve, lost: connected.reject };
    const channel = transport({ kind: 'tcp', host, port: Number(port) }, handler);
    await connected.promise;
    const stream = channel.open(LOAD_PATH, '', {
      message: () => false,
      proceed: () => false,
      closed: () => {},
    });
    const said: string[] = [];
    stream.write(new Uint8Array(), () => said.push('written'));
    await stream.finish();
    said.push('over');
    channel.close();
    expect(said).to.deep.equal(['written', 'over']);
  });
});
