import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { ControlPlane } from '../e2e/support/controlplane.ts';
import { Envoy } from '../e2e/support/envoy.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { goBinary } from '../e2e/support/go.ts';
import { startGrpcBackend } from '../e2e/support/grpc-backend.ts';
import { GrpcXdsClient } from '../e2e/support/grpc-xds.ts';
import { RelayProcess, upstream } from '../e2e/support/relay.ts';
import { grpcService, socketAddress, website } from '../e2e/support/resources.ts';
import { prepare, type Setting } from '../e2e/support/setting.ts';
import { need } from '../e2e/support/skip.ts';
import { ownPort } from '../support/ports.ts';
import { blocksOf } from './page.ts';

const page = blocksOf('docs/how-to/second-server.md');
const blockOf = (info: string): string => page.find((block) => block.info === info)?.text ?? '';

const envoyBootstrap = z.looseObject({
  static_resources: z.object({ clusters: z.array(z.looseObject({ name: z.string() })) }),
});
const grpcBootstrap = z.looseObject({
  xds_servers: z.array(z.looseObject({ server_uri: z.string() })),
});

const portOf = (address: string): number => Number(address.slice(address.lastIndexOf(':') + 1));

/** A control plane, and a relay before it that can be killed and started again where it was. */
class World implements AsyncDisposable {
  readonly xds: string;
  readonly plane: ControlPlane;
  #relay: RelayProcess | undefined;

  private constructor(xds: string, plane: ControlPlane) {
    this.xds = xds;
    this.plane = plane;
  }

  static async start(binary: string): Promise<World> {
    const plane = await ControlPlane.start(binary, { cache: 'snapshot' });
    const world = new World(`127.0.0.1:${await ownPort()}`, plane);
    await world.startRelay();
    return world;
  }

  async startRelay(): Promise<RelayProcess> {
    const backoff = { initial: '100ms', max: '1s' };
    this.#relay = await RelayProcess.start({
      xds: { address: this.xds },
      upstreams: [upstream(this.plane.address, 'DELTA', { backoff })],
    });
    return this.#relay;
  }

  async killRelay(): Promise<void> {
    await this.#relay?.kill();
    this.#relay = undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.killRelay();
    await this.plane[Symbol.asyncDispose]();
  }
}

/** Waits until so many clients of the relay have this node id. */
async function areClientsOf(relay: RelayProcess, id: string, count: number): Promise<void> {
  await eventually(
    async () => {
      expect((await relay.clients()).filter(({ node }) => node.id === id)).to.have.length(count);
    },
    { timeout: 60_000 },
  );
}

describe('docs/how-to/second-server.md', function () {
  this.timeout(240_000);
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  it('an Envoy that starts without the relay is at the control plane until its stream there ends', async () => {
    const { one, two, controlPlaneBinary } = setting;
    await using world = await World.start(controlPlaneBinary);
    // Another replica, whose streams can be ended without those of the relay.
    await using replica = await ControlPlane.start(controlPlaneBinary, { cache: 'snapshot' });
    const set = async (port: number): Promise<void> => {
      for (const plane of [world.plane, replica]) await plane.set(website('ads', port));
    };
    await set(one.port);
    const written = envoyBootstrap.parse(parse(blockOf('yaml envoy')));
    const ports = [portOf(world.xds), portOf(replica.address)];
    const clusters = written.static_resources.clusters.map((cluster, index) => ({
      ...cluster,
      load_assignment: {
        cluster_name: cluster.name,
        endpoints: [{ lb_endpoints: [{ endpoint: { address: socketAddress(ports[index] ?? 0) } }] }],
      },
    }));
    const boot = (id: string): Promise<Envoy> =>
      Envoy.boot(setting.envoyBinary, {
        ...written,
        node: { id, cluster: 'shop' },
        admin: { address: socketAddress(0) },
        static_resources: { clusters },
      });
    /** 1: at the relay, 2: at the control plane, 0: nowhere. */
    const where = (envoy: Envoy): Promise<number> => envoy.stat('control_plane.connected_state');
    await using early = await boot('early');
    await early.answers('web', '/', 'one');
    expect(await where(early)).to.equal(1);
    expect((await replica.stats()).opened).to.equal(0);

    await world.killRelay();
    await set(two.port);
    await using late = await boot('late');
    await late.answers('web', '/', 'two');
    expect(await where(late)).to.equal(2);
    await early.answers('web', '/', 'one');

    const relay = await world.startRelay();
    await early.answers('web', '/', 'two', 90_000);
    expect(await where(late), 'it stays while its stream lasts').to.equal(2);
    await replica[Symbol.asyncDispose]();
    await areClientsOf(relay, 'late', 1);
    await world.plane.set(website('ads', one.port));
    for (const envoy of [early, late]) await envoy.answers('web', '/', 'one');
  });

  it('grpc-go goes on at the control plane, and comes back when the relay does', async function () {
    const command = await need(this, goBinary('grpcclient'));
    await using one = await startGrpcBackend('one');
    await using two = await startGrpcBackend('two');
    await using world = await World.start(setting.controlPlaneBinary);
    const services = (port: number) => [...grpcService('shop', port), ...grpcService('office', port)];
    await world.plane.set(services(one.port));
    const written = grpcBootstrap.parse(JSON.parse(blockOf('json')));
    const servers = [world.xds, world.plane.address];
    const xds_servers = written.xds_servers.map((server, index) => ({
      ...server,
      server_uri: servers[index],
    }));
    const bootstrap = { ...written, xds_servers };
    await using client = new GrpcXdsClient({ xds: world.xds, bootstrap }, { command, args: [] });
    await client.answers('shop', 'one');
    expect((await world.plane.stats()).open, 'only the relay').to.equal(1);

    await world.killRelay();
    // A target that has everything stays as it is; one that is new falls back.
    await client.answers('office', 'one');
    await world.plane.set(services(two.port));
    await client.answers('office', 'two');
    expect(await client.call('shop')).to.equal('answer one');

    const relay = await world.startRelay();
    await areClientsOf(relay, 'grpc-1', 2);
    await client.answers('shop', 'two');
    await eventually(async () => {
      expect((await world.plane.stats()).open, 'only the relay').to.equal(1);
    });

    await using again = new GrpcXdsClient({ xds: world.xds, bootstrap }, { command, args: [] });
    await world.plane.set(services(one.port));
    for (const name of ['shop', 'office']) await again.answers(name, 'one');
  });
});
