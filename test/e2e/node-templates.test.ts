import { expect } from 'chai';
import { z } from 'zod';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const shown = z.looseObject({
  id: z.string(),
  cluster: z.string(),
  metadata: z.record(z.string(), z.unknown()),
});

describe('what a control plane is shown of a client', () => {
  it('a template of parameters as istiod wants its node id, labels with dots, and node.cluster', async () => {
    await using stack = new AsyncDisposableStack();
    const plane = await new ControlPlane().listen();
    stack.defer(() => plane.kill());
    plane.answer = (stream, request) => {
      if (request.responseNonce === '') stream.send(typeOf('cds'), '1', 'shop:1@1');
    };
    const ns = { key: 'ns', from: 'node.metadata.NAMESPACE' };
    const relay = stack.use(
      await RelayProcess.start({
        drain_timeout: '100ms',
        upstreams: [upstream(`127.0.0.1:${plane.port}`, 'DELTA')],
        parameters: [
          { ...ns, to: 'node.id=sidecar~0.0.0.0~x.$${ns}~$${ns}.svc.cluster.local' },
          { ...ns, to: 'node.metadata.NAMESPACE' },
          {
            key: 'app',
            from: 'node.metadata.LABELS["app.kubernetes.io/name"]',
            to: 'node.metadata.LABELS["app.kubernetes.io/name"]',
          },
          { key: 'gateway', from: 'node.cluster', to: 'node.cluster' },
        ],
      }),
    );
    const client = stack.use(
      new XdsClient(relay.xds, 'delta', {
        node: {
          id: 'envoy',
          cluster: 'edge',
          metadata: { NAMESPACE: 'shop', LABELS: { 'app.kubernetes.io/name': 'web' } },
        },
      }),
    );
    client.subscribe('cds');
    await client.gets('cds');
    const node = shown.parse(plane.requests[0]?.node);
    expect(node).to.deep.include({ id: 'sidecar~0.0.0.0~x.shop~shop.svc.cluster.local', cluster: 'edge' });
    expect(node.metadata).to.deep.equal({ NAMESPACE: 'shop', LABELS: { 'app.kubernetes.io/name': 'web' } });
    const dump = (await relay.get('/config_dump')).body;
    expect(dump).to.include('app.kubernetes.io/name');
  });
});
