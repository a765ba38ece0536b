import { connect, createServer, type Socket } from 'node:net';
import { Metadata, status } from '@grpc/grpc-js';
import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { ownPort } from '../support/ports.ts';
import { ControlPlane, controlPlaneBinary, type Stats } from './support/controlplane.ts';
import { eventually } from './support/eventually.ts';
import { goBinary } from './support/go.ts';
import { startGrpcBackend } from './support/grpc-backend.ts';
import { GrpcXdsClient } from './support/grpc-xds.ts';
import { RelayProcess, relayCommand, upstream } from './support/relay.ts';
import { grpcService, type Resource } from './support/resources.ts';
import { need } from './support/skip.ts';

/** Per-request costs (ORCA): cpu_utilization 0.25, named_metrics {"tokens": 3, "secret": 1}. */
const cost = new Metadata();
cost.set(
  'endpoint-load-metrics-bin',
  Buffer.concat([
    doubleField(1, 0.25),
    entry(8, 'tokens', 3), // named_metrics
    entry(8, 'secret', 1),
  ]),
);

function doubleField(number: number, value: number): Buffer {
  const bytes = Buffer.alloc(9, (number << 3) | 1);
  bytes.writeDoubleLE(value, 1);
  return bytes;
}

function entry(number: number, key: string, value: number): Buffer {
  const body = Buffer.concat([Buffer.from([0x0a, key.length]), Buffer.from(key), doubleField(2, value)]);
  return Buffer.concat([Buffer.from([(number << 3) | 2, body.length]), body]);
}

/** `shop`, whose clients report their load to where they have it from, and drop about every third call. */
const shop = (port: number): Resource[] =>
  grpcService('shop', port).map((resource) => {
    if (resource['@type'].endsWith('.Cluster'))
      return {
        ...resource,
        lrs_server: { self: {} },
        lrs_report_endpoint_metrics: ['cpu_utilization', 'named_metrics.tokens'],
      };
    if (!resource['@type'].endsWith('.ClusterLoadAssignment')) return resource;
    const drop_percentage = { numerator: 33, denominator: 'HUNDRED' };
    return { ...resource, policy: { drop_overloads: [{ category: 'throttle', drop_percentage }] } };
  });

/** Between a client and its server, and its connections can be cut. */
class Wire implements AsyncDisposable {
  readonly #sockets = new Set<Socket>();
  readonly #server;
  address = '';
  /** Connections so far. */
  opened = 0;

  constructor(to: string) {
    const port = Number(to.slice(to.lastIndexOf(':') + 1));
    this.#server = createServer((client) => {
      this.opened++;
      const server = connect(port, '127.0.0.1');
      for (const [from, other] of [
        [client, server],
        [server, client],
      ] as const) {
        this.#sockets.add(from);
        from
          .on('error', () => {})
          .on('close', () => {
            this.#sockets.delete(from);
            other.destroy();
          });
        from.pipe(other);
      }
    });
  }

  async listen(): Promise<this> {
    const port = await ownPort();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#server.listen(port, '127.0.0.1', resolve);
    await promise;
    this.address = `127.0.0.1:${port}`;
    return this;
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#server.close();
  }
}

type Load = Stats['loads'][string];

/** What a client has seen of its calls, as a control plane should hear it. */
class Seen {
  readonly load: Load = {
    issued: 0,
    succeeded: 0,
    failed: 0,
    inProgress: 0,
    dropped: 0,
    categories: { throttle: 0 },
    metrics: { 'named_metrics.tokens': { requests: 0, sum: 0 }, cpu_utilization: { requests: 0, sum: 0 } },
  };

  async call(client: GrpcXdsClient, count: number): Promise<void> {
    const outcomes = await Promise.all(Array.from({ length: count }, () => client.call('shop', 20)));
    for (const outcome of outcomes) this.#add(outcome);
  }

  #add(outcome: string): void {
    const { load } = this;
    if (outcome.includes('RPC is dropped')) {
      load.dropped++;
      load.categories['throttle'] = load.dropped;
      return;
    }
    load.issued++;
    if (outcome === 'answer backend') load.succeeded++;
    else if (outcome.startsWith(`error ${status.FAILED_PRECONDITION} `)) load.failed++;
    else throw new Error(`a call got ${outcome}`);
    for (const [name, value] of [
      ['named_metrics.tokens', 3],
      ['cpu_utilization', 0.25],
    ] as const) {
      const { requests = 0, sum = 0 } = load.metrics[name] ?? {};
      load.metrics[name] = { requests: requests + 1, sum: sum + value };
    }
  }
}

/** Of two control planes one after the other. */
function joined(a: Load | undefined, b: Load | undefined): Load | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  const both = { ...b };
  for (const key of ['issued', 'succeeded', 'failed', 'dropped'] as const) both[key] = a[key] + b[key];
  const { throttle = 0 } = a.categories;
  both.categories = { ...b.categories, throttle: throttle + (b.categories['throttle'] ?? 0) };
  both.metrics = Object.fromEntries(
    Object.entries(a.metrics).map(([name, { requests, sum }]) => {
      const other = b.metrics[name];
      return [name, { requests: requests + (other?.requests ?? 0), sum: sum + (other?.sum ?? 0) }];
    }),
  );
  return both;
}

describe('load reports of real gRPC clients (grpc-go)', function () {
  this.timeout(180_000);
  let planeBinary: string;
  let clientBinary: string;

  before(async function () {
    await need(this, relayCommand());
    planeBinary = await need(this, controlPlaneBinary());
    clientBinary = await need(this, goBinary('grpcclient'));
  });

  for (const workers of cases(2, 0)) {
    it(`what they did is what the control plane got, exactly, over its outage and cut streams; workers: ${workers}`, async () => {
      await using backend = await startGrpcBackend('backend', (call) => ({
        trailers: cost,
        ...(call % 4 === 3
          ? { error: { code: status.FAILED_PRECONDITION, details: 'no', metadata: cost } }
          : {}),
      }));
      const options = { cache: 'snapshot', load: '200ms' } as const;
      await using first = await ControlPlane.start(planeBinary, options);
      await first.set(shop(backend.port));
      await using relay = await RelayProcess.start({
        workers,
        upstreams: [upstream(first.address, 'DELTA')],
      });
      await using wire = await new Wire(relay.xds).listen();
      const program = { command: clientBinary, args: [] };
      await using one = new GrpcXdsClient({ xds: wire.address, id: 'one' }, program);
      await using two = new GrpcXdsClient({ xds: relay.xds, id: 'two' }, program);
      const seen = new Seen();
      const isExact = (plane: ControlPlane, before?: Load): Promise<unknown> =>
        eventually(
          async () => {
            const { loads } = await plane.stats();
            expect(joined(before, loads['shop-cluster'])).to.deep.equal(seen.load);
          },
          { timeout: 60_000 },
        );
      await seen.call(one, 60);
      await seen.call(two, 60);
      await isExact(first);
      expect([seen.load.succeeded, seen.load.failed, seen.load.dropped].every((count) => count > 0)).to.equal(
        true,
      );

      const { opened } = wire;
      wire.cut();
      // What grpc-go cannot send it loses: it has begun to count anew. So it calls when it reports again.
      await eventually(async () => {
        expect(wire.opened).to.be.above(opened);
        expect(await relay.metric('load_report_streams', 'direction="received"')).to.equal(2);
      });
      await seen.call(one, 30);
      await isExact(first);

      const before = structuredClone(seen.load);
      await first[Symbol.asyncDispose]();
      await seen.call(one, 30);
      await seen.call(two, 30);
      // They have reported it, while nobody was there upstream.
      await eventually(async () =>
        expect(await relay.metric('load_requests_total', 'outcome="success"')).to.equal(seen.load.succeeded),
      );
      await using second = await ControlPlane.start(planeBinary, { ...options, address: first.address });
      await second.set(shop(backend.port));
      await isExact(second, before);
    });
  }
});
