import { setTimeout as pause } from 'node:timers/promises';
import { expect } from 'chai';
import { ownPort } from '../../support/ports.ts';
import type { Client, ClientKind, Start } from './clients.ts';
import { ControlPlane } from './controlplane.ts';
import { always, eventually } from './eventually.ts';
import { RelayProcess, upstream } from './relay.ts';
import type { Resource } from './resources.ts';

/** A kind of client that was found on this machine, and what else a journey needs. */
export interface Journey {
  readonly kind: ClientKind;
  readonly start: Start;
  readonly controlPlaneBinary: string;
}

const shop = 'shop';
/** How long nothing may go wrong in an outage, in milliseconds. */
const outage = 1_000;
/** What the relay tries alone, to find out what was wrong in a response, is rejected too. */
const mostRejections = 3;

/** What a client has around it. Control plane and relay are replaced by others at their addresses. */
interface World {
  readonly kind: ClientKind;
  readonly client: Client;
  readonly ports: ReadonlyMap<string, number>;
  readonly another: () => Promise<Client>;
  readonly controlPlaneAgain: () => Promise<void>;
  readonly relayAgain: () => Promise<void>;
  readonly plane: ControlPlane;
  readonly relay: RelayProcess;
  /** Of the last publication. */
  version: number;
}

interface Step {
  /** A column of docs/compatibility.md. */
  readonly title: string;
  /** It begins where the step before has ended: the client's service is at backend `one`, and everything is up. */
  readonly take: (world: World) => Promise<void>;
}

const steps: readonly Step[] = [
  {
    title: 'configuration',
    async take(world) {
      await publish(world, 'one');
      await world.client.answers(shop, 'one');
      const { streams } = world.kind;
      const seen =
        streams === undefined
          ? world.relay.metric('downstream_responses_total', 'transport="rest"')
          : world.relay.metric('downstream_streams', streams);
      expect(await seen).to.be.at.least(1);
    },
  },
  {
    title: 'change',
    async take(world) {
      await publish(world, 'two');
      await world.client.answers(shop, 'two');
      await publish(world, 'one');
      await world.client.answers(shop, 'one');
    },
  },
  {
    title: 'NACK',
    async take(world) {
      const told = () => world.relay.metric('downstream_requests_total', 'kind="nack"');
      const rejections = world.client.rejections ?? told;
      await publish(world, 'one', [world.kind.rejected(shop)]);
      await eventually(async () => expect(await rejections()).to.be.at.least(1));
      await keepsAnswering(world, 'one');
      if (world.client.rejections === undefined) expect(await rejections()).to.be.at.most(mostRejections);
      const { requests } = await world.plane.stats();
      expect(requests.filter(({ nack }) => nack)).to.deep.equal([]);
      await publish(world, 'two');
      await world.client.answers(shop, 'two');
      await publish(world, 'one');
      await world.client.answers(shop, 'one');
    },
  },
  {
    title: 'control plane down',
    async take(world) {
      await world.plane[Symbol.asyncDispose]();
      await keepsAnswering(world, 'one');
      await using late = await world.another();
      await late.answers(shop, 'one');
      await world.controlPlaneAgain();
      await publish(world, 'two');
      for (const client of [world.client, late]) await client.answers(shop, 'two');
      await publish(world, 'one');
      await world.client.answers(shop, 'one');
    },
  },
  {
    title: 'relay down',
    async take(world) {
      await world.relay.kill();
      await keepsAnswering(world, 'one');
      await publish(world, 'two');
      await world.relayAgain();
      await world.client.answers(shop, 'two');
      await publish(world, 'one');
      await world.client.answers(shop, 'one');
    },
  },
  {
    title: 'relay drains',
    async take(world) {
      const stopped = world.relay.stop();
      await keepsAnswering(world, 'one');
      expect(await stopped).to.equal(0);
      await publish(world, 'two');
      await world.relayAgain();
      await world.client.answers(shop, 'two');
    },
  },
];

/** The steps' titles, in order. */
export const titles: readonly string[] = steps.map(({ title }) => title);

/** A client that has taken all steps, with the control plane and the relay that it has around it. */
export interface Arrived extends AsyncDisposable {
  readonly version: string;
  /**
   * A service that nobody has: requests to it fail when the times of the relay and of the client, 15 s each as they come,
   * are over. Requests to another service are answered all the time, and the missing one once it exists.
   */
  readonly missingName: () => Promise<void>;
}

/** Takes a client through all steps. */
export async function takeAllSteps({ kind, start, controlPlaneBinary }: Journey): Promise<Arrived> {
  await using stack = new AsyncDisposableStack();
  const ports = await backends(kind, stack);
  let plane = await ControlPlane.start(controlPlaneBinary, { cache: 'snapshot' });
  stack.defer(() => plane[Symbol.asyncDispose]());
  let relay = await startRelay(plane.address);
  stack.defer(() => relay[Symbol.asyncDispose]());
  const { xds, rest } = relay;
  const server = { xds: kind.streams === undefined ? rest : xds };
  const client = stack.use(await start({ ...server, id: 'first' }));
  const world: World = {
    kind,
    client,
    ports,
    get plane() {
      return plane;
    },
    get relay() {
      return relay;
    },
    another: () => start({ ...server, id: 'second' }),
    async controlPlaneAgain() {
      const { address } = plane;
      plane = await ControlPlane.start(controlPlaneBinary, { cache: 'snapshot', address });
    },
    async relayAgain() {
      relay = await startRelay(plane.address, relay);
    },
    version: 0,
  };
  for (const { title, take } of steps) await named(title, take(world));
  const version = await client.version();
  const all = stack.move();
  return {
    version,
    missingName: () => named(kind.title, lackService(world)),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

/** An error says where it was. */
async function named<T>(where: string, done: Promise<T>): Promise<T> {
  try {
    return await done;
  } catch (error) {
    throw new Error(`${where}: ${String(error)}`, { cause: error });
  }
}

/** The control plane has the service with this backend, and these resources besides or instead. */
async function publish(world: World, backend: string, changes: readonly Resource[] = []): Promise<void> {
  const changed = new Set(changes.map(identity));
  const service = world.kind.service(shop, world.ports.get(backend) ?? 0);
  world.version += 1;
  const version = String(world.version);
  await world.plane.set([...service.filter((one) => !changed.has(identity(one))), ...changes], { version });
}

const identity = (resource: Resource): string => JSON.stringify([resource['@type'], resource['name']]);

async function keepsAnswering({ client }: World, backend: string): Promise<void> {
  await always(async () => {
    expect(await client.request(shop)).to.equal(`answer ${backend}`);
  }, outage);
}

/** `before`: the relay whose addresses it takes. */
async function startRelay(plane: string, before?: RelayProcess): Promise<RelayProcess> {
  const upstreams = [upstream(plane, 'DELTA', { backoff: { initial: '100ms', max: '1s' } })];
  const xds = before?.xds ?? `127.0.0.1:${await ownPort()}`;
  const rest = before?.rest ?? `127.0.0.1:${await ownPort()}`;
  const listeners = { xds: { address: xds }, rest: { address: rest } };
  return RelayProcess.start({ upstreams, ...listeners, drain_timeout: '1s' });
}

async function backends(kind: ClientKind, stack: AsyncDisposableStack): Promise<ReadonlyMap<string, number>> {
  const one = stack.use(await kind.backend('one'));
  const two = stack.use(await kind.backend('two'));
  return new Map([
    ['one', one.port],
    ['two', two.port],
  ]);
}

/**
 * Of gRPC clients (gRFC A27) and of Envoy (initial_fetch_timeout), in milliseconds. No answer of a server shortens it: in
 * SotW gRPC clients take one without the name for an answer to an earlier request.
 */
const ownTimeout = 15_000;

async function lackService(world: World): Promise<void> {
  const { kind, client, ports } = world;
  const { outcome, waits } = kind.missing;
  await publish(world, 'one');
  await client.answers(shop, 'one');
  const asked = performance.now();
  await publish(world, 'one', kind.dangling('office'));
  const failed = eventually(async () => expect(await client.request('office')).to.match(outcome), {
    timeout: 60_000,
  });
  while (!(await Promise.race([failed.then(() => true), pause(200, false)])))
    expect(await client.request(shop)).to.equal('answer one');
  if (waits) expect(performance.now() - asked).to.be.within(0.95 * ownTimeout, 2.5 * ownTimeout);
  await publish(world, 'one', kind.service('office', ports.get('two') ?? 0));
  await client.answers('office', 'two');
}
