import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { ControlPlane } from '../e2e/support/controlplane.ts';
import { Envoy } from '../e2e/support/envoy.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { cluster, endpoints, listener, routes } from '../e2e/support/resources.ts';
import { prepare, type Setting } from '../e2e/support/setting.ts';
import { issueCertificate } from '../support/certificates.ts';
import { blocksOf } from './page.ts';

const page = blocksOf('docs/how-to/several-control-planes.md');
const blockOf = (info: string): string => page.find((block) => block.info === info)?.text ?? '';
const socket = z.object({ transport_socket: z.looseObject({}) });

/** A backend with TLS that answers with its name. */
class TlsBackend implements AsyncDisposable {
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(
    name: string,
    identity: { certificate: string; privateKey: string },
  ): Promise<TlsBackend> {
    const { certificate: cert, privateKey: key } = identity;
    const server = createServer({ cert, key }, (_, response) => response.end(name));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new TlsBackend(server);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

describe('docs/how-to/several-control-planes.md', () => {
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  it('one ADS stream has endpoints, secrets and the rest of three control planes; one outage stops one', async () => {
    const authority = issueCertificate({ name: 'authority', authority: true });
    const identity = issueCertificate({ name: 'shop', issuer: authority, dns: ['shop.example'] });
    await using one = await TlsBackend.start('one', identity);
    await using two = await TlsBackend.start('two', identity);
    const start = (ads: boolean): Promise<ControlPlane> =>
      ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot', ads });
    await using places = await start(true);
    await using secrets = await start(false);
    await using central = await start(true);
    const trusted = { trusted_ca: { inline_string: authority.certificate } };
    await places.set([endpoints('shop', one.port)]);
    await secrets.set([
      {
        '@type': 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret',
        name: 'spiffe://example.org',
        validation_context: trusted,
      },
    ]);
    const { transport_socket } = socket.parse(parse(blockOf('yaml')));
    await central.set([
      listener('web', 'web-routes'),
      routes('web-routes', { '/': 'shop' }),
      { ...cluster('shop'), transport_socket },
    ]);
    await using relay = await RelayProcess.start(blockOf('yaml relay'), {
      env: {
        XDS: '127.0.0.1:0',
        ADMIN: '127.0.0.1:0',
        ENDPOINTS: places.address,
        SECRETS: secrets.address,
        CENTRAL: central.address,
      },
    });
    await using envoy = await Envoy.start(setting.envoyBinary, { xds: relay.xds, transport: 'ads-delta' });
    await envoy.answers('web', '/', 'one');

    expect(await relay.metric('downstream_streams'), 'streams of Envoy').to.equal(1);
    const typesAt = async (plane: ControlPlane): Promise<readonly string[]> => {
      const { requests } = await plane.stats();
      return [...new Set(requests.map(({ type }) => type.slice(type.lastIndexOf('.') + 1)))].toSorted();
    };
    expect(await typesAt(places)).to.deep.equal(['ClusterLoadAssignment']);
    expect(await typesAt(secrets)).to.deep.equal(['Secret']);
    expect(await typesAt(central)).to.deep.equal(['Cluster', 'Listener', 'RouteConfiguration']);
    for (const plane of [places, secrets, central]) expect((await plane.stats()).open).to.equal(1);

    await central[Symbol.asyncDispose]();
    await eventually(async () => {
      expect(await relay.metric('upstream_connected', 'upstream="central"')).to.equal(0);
    });
    await places.set([endpoints('shop', two.port)]);
    await envoy.answers('web', '/', 'two');
  });

  it('it is ready without the control plane of secrets, and not without another one', async () => {
    const start = (): Promise<ControlPlane> =>
      ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot' });
    await using places = await start();
    await using central = await start();
    const env = {
      XDS: '127.0.0.1:0',
      ADMIN: '127.0.0.1:0',
      ENDPOINTS: places.address,
      SECRETS: 'unix:/nowhere/api.sock',
      CENTRAL: central.address,
    };
    await using relay = await RelayProcess.start(blockOf('yaml relay'), { env });
    await eventually(async () => {
      expect(await relay.metric('ready')).to.equal(1);
    });
    await using other = await RelayProcess.start(blockOf('yaml relay'), {
      env: { ...env, ENDPOINTS: 'unix:/nowhere/endpoints.sock' },
    });
    await eventually(async () => {
      expect(await other.metric('upstream_connected', 'upstream="central"')).to.equal(1);
    });
    expect(await other.metric('ready')).to.equal(0);
  });
});
