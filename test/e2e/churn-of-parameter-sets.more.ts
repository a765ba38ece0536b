import { expect } from 'chai';
import { slower } from '../support/cpu.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { typeOf } from '../upstream/ads/responses.ts';
import { eventually } from './support/eventually.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const eds = typeOf('eds');
/** Below the share of a stream: a quarter of limits.max_upstream_sessions. */
const sets = 240;
/** Milliseconds of the event loop's thread. Alone on a machine a request stays below 200; what is quadratic takes seconds. */
const mostBlocked = 600;

describe('a client that asks with other parameter sets again and again', () => {
  let plane: ControlPlane;
  let relay: RelayProcess;
  let client: XdsClient;

  before(async () => {
    plane = await new ControlPlane().listen();
    plane.answer = (stream, { responseNonce }) => {
      if (responseNonce === '') stream.send(eds, '1', 'shop:it@1');
    };
    relay = await RelayProcess.startProbed({
      drain_timeout: '100ms',
      upstreams: [upstream(`127.0.0.1:${plane.port}`, 'DELTA')],
      parameters: [{ key: 'env', from: 'node.metadata.env' }],
    });
    client = new XdsClient(relay.xds, 'delta');
  });

  after(async () => {
    await client?.[Symbol.asyncDispose]();
    await relay?.stop();
    plane?.kill();
  });

  const locators = (round: number) =>
    Array.from({ length: sets }, (_, at) => ({ name: 'shop', dynamicParameters: { env: `${round}-${at}` } }));

  it('is slowed down to the rate, and holds up nobody', async () => {
    await relay.blocked();
    const start = performance.now();
    const rounds = 6;
    for (let round = 0; round < rounds; round++) {
      client.delta('eds', {
        resourceLocatorsSubscribe: locators(round),
        resourceLocatorsUnsubscribe: round === 0 ? [] : locators(round - 1),
      });
    }
    await eventually(() => expect(plane.streams.length).to.be.at.least(rounds * sets), { timeout: 60_000 });
    const seconds = (performance.now() - start) / 1000;
    expect(client.status).to.equal(undefined);
    // 100 changes a second, and a second's worth at once; the last request is not waited for.
    expect(seconds).to.be.above(((rounds - 1) * sets - 100) / 100 - 1);
    const { cpu } = await relay.blocked();
    expect(cpu / slower()).to.be.below(mostBlocked);
  });
});
