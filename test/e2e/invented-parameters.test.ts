import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { ControlPlane, type Request } from '../upstream/ads/control-plane.ts';
import { typeOf } from '../upstream/ads/responses.ts';
import { eventually } from './support/eventually.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const eds = typeOf('eds');

describe('clients that invent parameter values', function () {
  this.timeout(60_000);

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

  it('all of whose locators are past max_upstream_sessions end; a locator beside others gets an error', async () => {
    const plane = await new ControlPlane().listen();
    plane.answer = (stream, { responseNonce }) => {
      if (responseNonce === '') stream.send(eds, '1', 'shop:it@1');
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
    const asking = (protocol: 'sotw' | 'delta', ...envs: readonly string[]): XdsClient => {
      const client = stack.use(new XdsClient(relay.xds, protocol));
      const locators = envs.map((env) => ({ name: 'shop', dynamicParameters: { env } }));
      if (protocol === 'delta') client.delta('eds', { resourceLocatorsSubscribe: locators });
      else client.sotw('eds', { resourceLocators: locators });
      return client;
    };
    await asking('delta', 'a').gets('eds');
    await asking('delta', 'b').gets('eds');
    for (const protocol of ['sotw', 'delta'] as const) {
      const refused = await asking(protocol, 'c', 'd').ends();
      expect(refused.code).to.equal(8);
      expect(refused.details).to.include('limits.max_upstream_sessions');
      const served = asking(protocol, 'a', 'e');
      await served.gets('eds');
      await relay.get('/ready');
      expect(served.status, 'what it has beside it goes on').to.equal(undefined);
    }
  });
});
