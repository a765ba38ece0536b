import { Tally } from '../simulator/tally.ts';
import type { Case, Event } from './arbitrary.ts';
import { Tenant } from './tenant.ts';
import { World } from './world.ts';

/** Longer than changed routes wait for their clusters; in all, not as long as a client may stop reading. */
const quietMilliseconds = 1100;

/** Plays a case. Throws at the first thing that a client is told and may not know, or lacks and may. */
export function run(plan: Case, tally = new Tally()): void {
  const { policy, clients, resources, events, withConstraints, contentVersions } = plan;
  const world = new World(policy, tally, { constrained: withConstraints, contentVersions });
  for (const resource of resources) world.put(resource);
  const tenants = clients.map((plan) => new Tenant(world, plan));
  for (const event of [...events, ...tenants.map((_, client) => ({ kind: 'read on' as const, client }))]) {
    step(world, tenants, event);
    // What was told before upstream answered, and after.
    for (const tenant of tenants) tenant.read();
    for (let round = 0; round < 2; round++) {
      world.answer();
      world.lab.clock.advance(quietMilliseconds);
      world.lab.settle();
      for (const tenant of tenants) tenant.read();
    }
    for (const tenant of tenants) tenant.check();
  }
}

function step(world: World, tenants: readonly Tenant[], event: Event): void {
  const tenant = 'client' in event ? tenants[event.client] : undefined;
  switch (event.kind) {
    case 'subscribe':
      tenant?.subscribe(event.add.type, event.add.selectors, event.drop);
      break;
    case 'put':
      world.put(event.resource);
      break;
    case 'remove':
      world.remove(event.at);
      break;
    case 'error':
      world.error(event.type, event.name, event.code);
      break;
    case 'reload':
      world.reload(event.policy);
      break;
    case 'node':
      tenant?.become(event.metadata);
      break;
    case 'stop':
      tenant?.stop();
      break;
    case 'read on':
      tenant?.readOn();
      break;
    case 'reject':
      tenant?.rejectNext();
      break;
    case 'reconnect':
      tenant?.reconnect();
      break;
    default:
      event satisfies never;
  }
}
