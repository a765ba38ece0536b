import fc from 'fast-check';
import { Tally } from '../simulator/tally.ts';
import { type Case, cases, type Event } from '../tenants/arbitrary.ts';
import { RealWorld } from '../tenants/real-world.ts';
import { Tenant } from '../tenants/tenant.ts';
import { eventually } from './support/eventually.ts';

/** `TENANT_CASES=200 mocha test/e2e/tenants-random.test.ts` plays more. */
const count = Number(process.env['TENANT_CASES'] ?? 4);
const seed = 1;

async function play({ policy, clients, resources, events }: Case, world: RealWorld): Promise<void> {
  world.begin(resources);
  await world.reload(policy, () => undefined);
  const tenants = clients.map((plan) => new Tenant(world, plan));
  const read = (): void => {
    for (const tenant of tenants) tenant.read();
  };
  for (const event of events) {
    await step(event, world, tenants, read);
    await eventually(() => {
      read();
      for (const tenant of tenants) tenant.check();
    });
    await world.askStatus();
  }
}

async function step(
  event: Event,
  world: RealWorld,
  tenants: readonly Tenant[],
  read: () => void,
): Promise<void> {
  const tenant = 'client' in event ? tenants[event.client] : undefined;
  if (event.kind === 'subscribe') tenant?.subscribe(event.add.type, event.add.selectors, event.drop);
  else if (event.kind === 'put') world.change([event.resource], []);
  else if (event.kind === 'remove') world.change([], [event.at]);
  else if (event.kind === 'reload') await world.reload(event.policy, read);
  else if (event.kind === 'node') tenant?.become(event.metadata);
  else if (event.kind === 'reconnect') tenant?.reconnect();
}

describe('tenants: nobody gets what it may not see, on the real process', function () {
  this.timeout(60_000 + count * 20_000);

  for (const workers of [0, 2]) {
    it(`${count} random cases with certificates, CSDS and reloads (seed ${seed}, workers: ${workers})`, async () => {
      await using world = await RealWorld.start(workers, new Tally());
      for (const [index, plan] of fc.sample(cases, { seed, numRuns: count }).entries()) {
        try {
          await play(plan, world);
        } catch (error) {
          throw new Error(`case ${index}: ${JSON.stringify(plan)}`, { cause: error });
        }
      }
    });
  }
});
