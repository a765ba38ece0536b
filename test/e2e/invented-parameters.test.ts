import { expect } from 'chai';
import { typeUrl } from '../../src/model/brand.ts';
import { cases } from '../support/cases.ts';
import { ControlPlane, type Request } from '../upstream/ads/control-plane.ts';
import { typeOf } from '../upstream/ads/responses.ts';
import { eventually } from './support/eventually.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const eds = typeOf('eds');

describe('clients that invent parameter values', () => {
  for (const workers of cases(2, 0)) {
    describe(`workers: ${workers}`, () => {
      let plane: ControlPlane;
      let relay: RelayProcess;
      const clients: XdsClient[] = [];

      before(async () => {
        plane = await new ControlPlane().listen();
        // It has something for every node.
        plane.answer = (stream, request: Request) => {
          if (request.responseNonce === '') stream.send(eds, '1', 'shop:it@1');
        };
        relay = await RelayProcess.start({
          drain_timeout: '100ms',
          workers,
          upstreams: [upstream(`127.0.0.1:${plane.port}`, 'DELTA')],
          parameters: [{ key: 'env', from: 'node.metadata.env' }],
          limits: { max_upstream_sessions: 32 },
          cache: { idle_ttl: '600s' },
        });
      });
      afterEach(async () => {
        for (const client of clients.splice(0)) await client[Symbol.asyncDispose]();
      });
      after(async () => {
        await relay?.stop();
        plane?.kill();
      });

      const open = (env: string): XdsClient => {
        const client = new XdsClient(relay.xds, 'delta', { node: { id: env, metadata: { env } } });
        clients.push(client);
        return client;
      };
      /** As a client that tries again does: until it is served. */
      const isServed = (env: string): Promise<void> =>
        eventually(
          async () => {
            const client = open(env);
            client.subscribe('eds', ['shop']);
            await eventually(() =>
              expect(client.status !== undefined || client.of('eds').length > 0).to.equal(true),
            );
            expect(client.status).to.equal(undefined);
          },
          { pause: 500 },
        );
      const invent = (client: XdsClient, values: number, round = ''): void => {
        const locators = Array.from({ length: values }, (_, at) => ({
          name: 'shop',
          dynamicParameters: { env: `invented-${round}-${at}` },
        }));
        client.delta('eds', { resourceLocatorsSubscribe: locators });
      };

      it('with one request take no session, and are told what to do; others are served', async () => {
        const attacker = open('attacker');
        invent(attacker, 100);
        const status = await attacker.ends();
        expect(status.code, status.details).to.equal(8);
        expect(status.details).to.include('limits.max_upstream_sessions').and.to.include('at most 8');
        expect(await relay.metric('downstream_rejected_total', 'reason="upstream_sessions"')).to.equal(1);
        await isServed('prod');
        expect(await relay.metric('upstream_sessions')).to.equal(1);
      });

      it('from one peer leave half of the sessions to others', async () => {
        const before = await relay.metric('upstream_sessions');
        for (let round = 0; round < 8; round++) invent(open('attacker'), 4, String(round));
        await eventually(() => {
          const refused = clients.filter(({ status }) => status?.code === 8);
          expect(refused.length).to.be.at.least(4);
        });
        expect(await relay.metric('upstream_sessions')).to.be.at.most(before + 16);
      });

      it('and leave keep nobody out until idle_ttl', async () => {
        for (let round = 0; round < 6; round++) {
          const attacker = open('attacker');
          invent(attacker, 4, String(round));
          await eventually(() => expect(attacker.of('eds').length).to.be.at.least(1));
          await attacker[Symbol.asyncDispose]();
        }
        for (const env of ['prod', 'test', 'dev']) await isServed(env);
        expect(await relay.metric('upstream_sessions')).to.be.at.most(32);
      });
    });
  }

  it('locators past max_upstream_sessions get a resource error, and what is asked for later is served', async () => {
    const plane = await new ControlPlane().listen();
    plane.answer = (stream, { typeUrl: type, responseNonce }) => {
      if (responseNonce === '') stream.send(typeUrl(type), '1', type === eds ? 'shop:it@1' : 'door:it@1');
    };
    await using stack = new AsyncDisposableStack();
    stack.defer(() => plane.kill());
    const relay = stack.use(
      await RelayProcess.start({
        drain_timeout: '100ms',
        upstreams: [upstream(`127.0.0.1:${plane.port}`, 'DELTA')],
        parameters: [{ key: 'env', from: 'node.metadata.env' }],
        limits: { max_upstream_sessions: 2 },
      }),
    );
    const open = (protocol: 'sotw' | 'delta', path?: string): XdsClient =>
      stack.use(new XdsClient(relay.xds, protocol, path === undefined ? {} : { path }));
    const ask = (client: XdsClient, protocol: 'sotw' | 'delta', type: string, env: string): void => {
      const locators = [{ name: type === 'eds' ? 'shop' : 'door', dynamicParameters: { env } }];
      if (protocol === 'delta') client.delta(type, { resourceLocatorsSubscribe: locators });
      else client.sotw(type, { resourceLocators: locators });
    };
    for (const env of ['a', 'b']) {
      const client = open('delta');
      ask(client, 'delta', 'eds', env);
      await client.gets('eds');
    }
    for (const protocol of ['sotw', 'delta'] as const) {
      const aggregated = open(protocol);
      ask(aggregated, protocol, 'eds', 'c');
      const refused = await aggregated.gets('eds');
      expect([refused.resources, refused.errors]).to.deep.equal([0, ['shop: 8']]);
      ask(aggregated, protocol, 'lds', 'a');
      expect((await aggregated.gets('lds')).resources).to.equal(1);
      expect(aggregated.status).to.equal(undefined);
    }
    const ofOneType = open('delta', '/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints');
    ask(ofOneType, 'delta', 'eds', 'd');
    expect((await ofOneType.gets('eds')).errors).to.deep.equal(['shop: 8']);
    ask(ofOneType, 'delta', 'eds', 'a');
    expect((await ofOneType.gets('eds', 2)).resources).to.equal(1);
    expect(ofOneType.status).to.equal(undefined);
  });
});
