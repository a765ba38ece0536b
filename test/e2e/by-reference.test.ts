import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { TLSSocket } from 'node:tls';
import { expect } from 'chai';
import { issueCertificate } from '../support/certificates.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import {
  type ByReference,
  clusterOnDemand,
  extension,
  runtime,
  scopes,
  secrets,
  virtualHost,
} from './support/by-reference.ts';
import { ControlPlane, subscriptions } from './support/controlplane.ts';
import { Envoy } from './support/envoy.ts';
import { eventually } from './support/eventually.ts';
import { type Answer, send } from './support/http.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { prepare, type Setting } from './support/setting.ts';

const transports = ['ads-sotw', 'ads-delta'] as const;

/** Control plane, relay and Envoy with the resources that refer to something. */
class Scene implements AsyncDisposable {
  readonly plane: ControlPlane;
  readonly envoy: Envoy;
  readonly #resources: ByReference;
  readonly #stack: AsyncDisposableStack;

  private constructor(
    plane: ControlPlane,
    envoy: Envoy,
    resources: ByReference,
    stack: AsyncDisposableStack,
  ) {
    this.plane = plane;
    this.envoy = envoy;
    this.#resources = resources;
    this.#stack = stack;
  }

  static async start(
    setting: Setting,
    transport: 'ads-sotw' | 'ads-delta',
    resources: ByReference,
  ): Promise<Scene> {
    await using stack = new AsyncDisposableStack();
    const plane = stack.use(await ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot' }));
    await plane.set(resources.first);
    const relay = stack.use(
      await RelayProcess.start({ drain_timeout: '100ms', upstreams: [upstream(plane.address, 'DELTA')] }),
    );
    const { bootstrap = {} } = resources;
    const envoy = stack.use(await Envoy.start(setting.envoyBinary, { xds: relay.xds, transport, bootstrap }));
    return new Scene(plane, envoy, resources, stack.move());
  }

  /** Until Envoy's request for this has come as far as the control plane. */
  async asked(type: string, name: string): Promise<void> {
    await eventually(async () => {
      expect(subscriptions(await this.plane.stats()), this.envoy.output).to.include(
        `${typeOf(type)} ${name}`,
      );
    });
  }

  arrives(): Promise<void> {
    const { first, second } = this.#resources;
    return this.plane.set([...first, ...second]);
  }

  changes(): Promise<void> {
    const { first, changed } = this.#resources;
    return this.plane.set([...first, ...changed]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

/** A backend that wants a client certificate, and answers with the name in it. */
async function certificateBackend(key: string, cert: string, ca: string) {
  const server = createServer({ key, cert, ca, requestCert: true }, (request, response) => {
    const { socket } = request;
    const { subject } = socket instanceof TLSSocket ? socket.getPeerCertificate() : { subject: undefined };
    response.setHeader('connection', 'close');
    response.end(String(subject?.CN));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address: AddressInfo | string | null = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

describe('a real Envoy with resources by reference: a request works once they have arrived', () => {
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  /** Nothing is served before what is referred to is there. */
  const isWarming = async (envoy: Envoy): Promise<void> => {
    const served = await envoy.get('web', '/').catch(() => undefined);
    expect(served).to.equal(undefined);
  };

  for (const transport of transports) {
    it(`ECDS: the configuration of a filter (${transport})`, async () => {
      await using scene = await Scene.start(setting, transport, extension(setting.one.port));
      await scene.asked('ecds', 'gate');
      await isWarming(scene.envoy);
      await scene.arrives();
      await scene.envoy.answers('web', '/', 'one');
      await scene.changes();
      await scene.envoy.answers('web', '/', { status: 418, body: 'fault filter abort' });
    });

    it(`RTDS: a layer of the runtime (${transport})`, async () => {
      await using scene = await Scene.start(setting, transport, runtime(setting.one.port));
      await scene.asked('rtds', 'central');
      await isWarming(scene.envoy);
      await scene.arrives();
      await scene.envoy.answers('web', '/', 'one');
      await scene.changes();
      await scene.envoy.answers('web', '/', { status: 404, body: '' });
    });

    it(`SDS by reference: Envoy's own certificate, and the authority that it trusts (${transport})`, async () => {
      const authority = issueCertificate({ name: 'authority', authority: true });
      const issue = (name: string) => issueCertificate({ name, issuer: authority, dns: ['localhost'] });
      const [server, first, next] = [issue('backend'), issue('first'), issue('next')];
      await using backend = await certificateBackend(
        server.privateKey,
        server.certificate,
        authority.certificate,
      );
      const resources = secrets(backend.port, authority, first, next);
      await using scene = await Scene.start(setting, transport, resources);
      await scene.asked('sds', 'own');
      await scene.asked('sds', 'authority');
      await isWarming(scene.envoy);
      await scene.arrives();
      await scene.envoy.answers('web', '/', 'first');
      await scene.changes();
      await scene.envoy.answers('web', '/', 'next');
    });

    it(`SRDS: the scope that says which routes a request gets (${transport})`, async () => {
      await using scene = await Scene.start(setting, transport, scopes(setting.one.port, setting.two.port));
      await scene.envoy.answers('web', '/shop', { status: 404, body: '' });
      await scene.arrives();
      await scene.envoy.answers('web', '/shop', 'one');
      await scene.changes();
      await scene.envoy.answers('web', '/shop', 'two');
    });
  }

  /** One request: Envoy holds it until it knows what it has asked for. */
  const request = async (envoy: Envoy, host: string): Promise<Answer> => {
    await eventually(async () => expect(await envoy.stat('listener_manager.workers_started')).to.equal(1));
    const url = await envoy.url('web');
    return send('GET', `${url}/`, '', 'text/plain', { host });
  };

  it('VHDS: the virtual host of a request, asked for when the request comes', async () => {
    const host = 'shop.example.com';
    const { one, two } = setting;
    await using scene = await Scene.start(setting, 'ads-delta', virtualHost(host, one.port, two.port));
    const waiting = request(scene.envoy, host);
    await scene.asked('vhds', `web-routes/${host}`);
    await scene.arrives();
    expect(await waiting).to.deep.equal({ status: 200, body: 'one' });
    await scene.changes();
    await eventually(async () => expect((await request(scene.envoy, host)).body).to.equal('two'));
  });

  it('ODCDS: the cluster of a request, asked for when the request comes', async () => {
    const { one, two } = setting;
    await using scene = await Scene.start(setting, 'ads-delta', clusterOnDemand(one.port, two.port));
    const waiting = request(scene.envoy, 'shop.example.com');
    await scene.asked('cds', 'shop');
    await scene.arrives();
    expect(await waiting).to.deep.equal({ status: 200, body: 'one' });
    await scene.changes();
    await scene.envoy.answers('web', '/', 'two');
    expect(subscriptions(await scene.plane.stats())).to.not.include(`${typeOf('cds')} *`);
  });
});
