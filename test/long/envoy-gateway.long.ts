import { expect } from 'chai';
import type { Envoy } from '../e2e/support/envoy.ts';
import { EnvoyGateway, envoyGatewayBinary } from '../e2e/support/envoy-gateway.ts';
import { always, eventually } from '../e2e/support/eventually.ts';
import { get } from '../e2e/support/http.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { bootRecipe, startRecipe } from '../e2e/support/recipe.ts';
import type { RelayProcess } from '../e2e/support/relay.ts';
import { type EnvoySetting, prepareEnvoy } from '../e2e/support/setting.ts';
import { need } from '../e2e/support/skip.ts';
import { ownPort } from '../support/ports.ts';

describe('deploy/recipes/envoy-gateway', function () {
  this.timeout(30 * 60_000);
  let setting: EnvoySetting;
  let binary: string;

  before(async function () {
    setting = await prepareEnvoy(this);
    binary = await need(this, envoyGatewayBinary());
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  it('two proxies of a Gateway are one session, with mutual TLS both ways; change, outage, restart of either', async () => {
    await using stack = new AsyncDisposableStack();
    const { one, two } = setting;
    const gateway = stack.use(new EnvoyGateway(binary));
    await gateway.makeCertificates();
    const port = await ownPort(); // 0 is not for a Gateway
    gateway.write(port, one.port);
    await gateway.start();

    const STATE = stack.use(temporaryDirectory()).path;
    const env = { CONTROL_PLANE: gateway.address, TLS: gateway.certificates, STATE };
    const relayed = async (): Promise<RelayProcess> =>
      stack.use(await startRecipe('envoy-gateway/relay.yaml', env));
    const proxy = async (relay: RelayProcess, id: string): Promise<Envoy> =>
      stack.use(
        await bootRecipe(setting.envoyBinary, relay, 'envoy-gateway/envoy.yaml', {
          tls: ['/etc/envoy-gateway/certs/envoy', gateway.certificates],
          node: { id },
        }),
      );
    const serves = (name: string): Promise<void> =>
      eventually(
        async () => {
          const answer = await get(`http://127.0.0.1:${port}/`);
          expect(answer, gateway.output).to.deep.equal({ status: 200, body: name });
        },
        { timeout: 60_000 },
      );
    const relay = await relayed();
    const envoys = [await proxy(relay, 'edge-1'), await proxy(relay, 'edge-2')];
    await serves('one');
    expect(await relay.metric('upstream_sessions')).to.equal(1);
    // Of the Gateway, and Envoy Gateway's own for readiness.
    for (const envoy of envoys)
      await eventually(async () => {
        expect(await envoy.stat('listener_manager.total_listeners_active')).to.equal(2);
      });

    gateway.write(port, two.port);
    await serves('two');

    await gateway.kill();
    await always(() => serves('two'), 1_000);
    for (const envoy of envoys) await envoy[Symbol.asyncDispose]();
    expect(await relay.stop()).to.equal(0);
    const again = await relayed();
    await proxy(again, 'edge-3');
    await serves('two');

    gateway.write(port, one.port);
    await gateway.start();
    await serves('one');
    expect(await again.metric('downstream_requests_total', 'kind="nack"')).to.equal(0);
  });
});
