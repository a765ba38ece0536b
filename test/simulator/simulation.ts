import { Client } from './client.ts';
import { ControlPlane } from './control-plane.ts';
import { EventLoop } from './event-loop.ts';
import { Ledger } from './ledger.ts';
import { Network } from './network.ts';
import { Random } from './random.ts';
import { RelayHost, type SimulatedHost } from './relay-host.ts';
import type { Plan, Step } from './schedule.ts';
import { Tally } from './tally.ts';
import { type Note, type Rule, Violation } from './violation.ts';
import { catalog, change, harm, kinds, populate, swapClusters, type Variant, World } from './world.ts';

export interface Outcome {
  /** Undefined: all rules were kept. */
  readonly failure: { readonly rule: Rule; readonly message: string } | undefined;
  /** Empty unless asked for. */
  readonly transcript: readonly string[];
  /** Responses that clients received. */
  readonly responses: number;
  readonly tally: Tally;
}

/** Virtual milliseconds until everything has been said, and in which nothing more may be. */
const calmDown = 70_000;
const silence = 20_000;
/** How long clients have to come back to a relay that has restarted in an outage. */
const outageMs = 5000;
/** All waves of a change, with their bakes and waits. */
const wavesMs = 150_000;
/** How often operators promote in this time: changes that are queued have waves of their own, and so has a relay below. */
const promotions = 10;
/** How long a relay that ends has to hand over what it was told of load. */
const drainMs = 400;
/** Clients have reported twice since they rested. */
const restedMs = 7000;
/** What control planes ask of load reports. */
const asks = [500, 1000, 3000].flatMap((intervalMs) =>
  [undefined, ['a'], ['b', 'a']].map((clusters) => ({ intervalMs, clusters })),
);

/** Runs a schedule. The same plan and steps give the same outcome, always. */
export function simulate(plan: Plan, steps: readonly Step[], write = false): Outcome {
  const simulation = new Simulation(plan, write);
  return simulation.run(steps);
}

class Simulation {
  readonly #plan: Plan;
  readonly #write: boolean;
  readonly #loop = new EventLoop();
  readonly #world = new World();
  readonly #planes = new Map<string, ControlPlane>();
  readonly #relays = new Map<string, RelayHost>();
  readonly #clients = new Map<string, Client>();
  readonly #transcript: string[] = [];
  readonly #tally = new Tally();
  readonly #ledger = new Ledger();
  /** What may have made a change bad. */
  readonly #caused = new Set<string>();
  readonly #startedAt: number;

  constructor(plan: Plan, write: boolean) {
    this.#plan = plan;
    this.#write = write;
    this.#startedAt = this.#loop.now();
    const { seed } = plan;
    const note: Note = (line) => this.#note(line);
    const network = new Network({
      note,
      loop: this.#loop,
      seed,
      overrun: ({ name, host }) => {
        if (this.#relays.has(host.id)) throw new Violation(5, `${name}: written to, though it had to wait`);
      },
      lost: (report) => this.#ledger.lost(report),
    });
    const hosts = new Map<string, SimulatedHost>();
    const later = (milliseconds: number, run: () => void): void => {
      this.#loop.after(milliseconds, run);
    };
    this.#world.listen((revision, edits) => {
      for (const { kind, name, variants } of edits) {
        note(() => `world ${revision}: ${kind} ${name} [${variants.map(describeVariant).join(' ')}]`);
      }
    });
    for (const { id, habits } of plan.planes) {
      const plane = new ControlPlane(id, habits, this.#world, later, this.#ledger);
      this.#planes.set(id, plane);
      hosts.set(id, plane);
    }
    populate(this.#world, new Random(seed, 'populate'));
    for (const relayPlan of plan.relays) {
      const relay = new RelayHost(relayPlan, {
        network,
        seed,
        hosts,
        note,
        tally: this.#tally,
        world: this.#world,
        ledger: this.#ledger,
      });
      this.#relays.set(relayPlan.id, relay);
      hosts.set(relayPlan.id, relay);
    }
    for (const clientPlan of plan.clients) {
      const options = {
        plan: clientPlan,
        network,
        world: this.#world,
        relays: this.#relays,
        note,
        tally: this.#tally,
      };
      this.#clients.set(clientPlan.id, new Client(options));
    }
  }

  run(steps: readonly Step[]): Outcome {
    let failure: Outcome['failure'];
    try {
      for (const step of [...steps, { wait: 0, kind: 'quiet' } as const]) {
        this.#loop.advance(step.wait);
        this.#note(() => `— ${describeStep(step)}`);
        this.#do(step);
      }
    } catch (error) {
      if (error instanceof Violation) failure = { rule: error.rule, message: error.message };
      else
        failure = {
          rule: 0,
          message: error instanceof Error ? (error.stack ?? error.message) : String(error),
        };
      const { rule, message } = failure;
      this.#note(() => `VIOLATION of rule ${rule}: ${message}`);
    }
    const responses = this.#received();
    return { failure, transcript: this.#transcript, responses, tally: this.#tally };
  }

  #do(step: Step): void {
    this.#cause(step);
    this.#tally.count('does' in step ? `${step.kind} ${step.does}` : step.kind);
    switch (step.kind) {
      case 'start':
        this.#clients.get(step.client)?.start();
        break;
      case 'change':
        change(this.#world, new Random(this.#plan.seed, 'change', step.salt));
        break;
      case 'fault':
        this.#fault(new Random(this.#plan.seed, 'fault', step.salt));
        break;
      case 'swap':
        this.#swap(step);
        break;
      case 'subscribe':
        this.#clients.get(step.client)?.subscribe(step.type, step.names, step.wildcard);
        break;
      case 'unsubscribe':
        this.#clients.get(step.client)?.unsubscribe(step.type, step.names, step.wildcard);
        break;
      case 'node':
        this.#clients.get(step.client)?.changeNode(step.parameters);
        break;
      case 'reject':
        this.#clients.get(step.client)?.rejectNext();
        break;
      case 'stall':
        this.#clients.get(step.client)?.stall(step.milliseconds);
        break;
      case 'disconnect':
        this.#clients.get(step.client)?.disconnect(step.milliseconds, step.elsewhere);
        break;
      case 'plane':
        this.#fail(step.plane, step.does, step.milliseconds);
        break;
      case 'restart':
        this.#planes.get(step.plane)?.restart();
        break;
      case 'stream':
        this.#planes.get(step.plane)?.failStream(step.at);
        break;
      case 'cut':
        this.#relays.get(step.relay)?.cutLink();
        break;
      case 'stallLink':
        // That a split answer has come to its end is only known by the time that nothing more comes (protocol §5b).
        if (this.#plan.planes.some(({ habits }) => habits.splits)) break;
        this.#relays.get(step.relay)?.stallLink(step.milliseconds);
        break;
      case 'crash':
        this.#crash(step.relay, step.milliseconds, step.gracefully === true);
        break;
      case 'gate':
        this.#relays.get(step.relay)?.turnGate(step.does);
        break;
      case 'outage':
        this.#outage(step.relay);
        break;
      case 'harm':
        harm(this.#world, new Random(this.#plan.seed, 'harm', step.salt));
        break;
      case 'rollout':
        this.#relays.get(step.relay)?.operate(step.does);
        break;
      case 'check':
        this.#relays.get(step.relay)?.checksSay(step.says);
        break;
      case 'ask':
        for (const plane of this.#planes.values())
          plane.asksFor(new Random(this.#plan.seed, 'ask', step.salt).pick(asks));
        break;
      case 'quiet':
        this.#quiet();
        break;
      default:
        step satisfies never;
    }
  }

  #cause({ kind }: Step): void {
    if (kind === 'reject') this.#caused.add('reject');
    // Clients, or their connections, end.
    else if (
      kind === 'disconnect' ||
      kind === 'crash' ||
      kind === 'outage' ||
      kind === 'node' ||
      kind === 'stall'
    )
      this.#caused.add('disconnect');
  }

  #fault(random: Random): void {
    const kind = random.pick(kinds);
    const name = random.pick(catalog[kind].names);
    for (const plane of this.#planes.values()) plane.fault(kind, name);
  }

  #swap({ salt, gap, order = 'make before break' }: Extract<Step, { readonly kind: 'swap' }>): void {
    // Of what is told apart, in a wrong order, `xds.removal_grace` alone keeps what clients need.
    const isKept = this.#plan.relays.every(({ keepsNothing }) => keepsNothing !== true);
    const told = isKept ? order : 'make before break';
    const edits = swapClusters(this.#world, new Random(this.#plan.seed, 'swap', salt), told);
    this.#tally.count(`swap: ${told}`);
    for (const [index, edit] of edits.entries()) this.#loop.after(index * gap, edit);
    this.#loop.advance(edits.length * gap);
  }

  #fail(id: string, does: 'down' | 'deaf', milliseconds: number): void {
    const plane = this.#planes.get(id);
    if (plane === undefined) return;
    plane.reachable = does;
    if (does === 'down') plane.restart();
    this.#loop.after(milliseconds, () => this.#revive(plane));
  }

  /** One that was deaf has lost its streams. */
  #revive(plane: ControlPlane): void {
    if (plane.reachable === 'deaf') plane.restart();
    plane.reachable = 'up';
  }

  #crash(id: string, milliseconds: number, gracefully: boolean): void {
    const relay = this.#relays.get(id);
    if (relay === undefined || relay.reachable === 'down') return;
    if (gracefully && relay.drain()) this.#loop.advance(drainMs);
    relay.crash(gracefully);
    this.#loop.after(milliseconds, () => {
      if (relay.reachable === 'down') relay.start();
    });
  }

  /** What a relay has saved it serves, though nothing above answers: rule 4 at once. */
  #outage(id: string): void {
    const relay = this.#relays.get(id);
    if (relay === undefined) return;
    this.#quiet();
    for (const plane of this.#planes.values()) {
      plane.reachable = 'down';
      plane.restart();
    }
    if (relay.drain()) this.#loop.advance(drainMs);
    relay.crash(true);
    relay.start();
    this.#loop.advance(outageMs);
    if (!this.#plan.relays.some(({ id: other }) => relay.plan.endpoints.includes(other))) relay.checkStale();
    for (const client of this.#clients.values()) client.settleIn(relay);
    for (const plane of this.#planes.values()) this.#revive(plane);
  }

  #quiet(): void {
    for (const plane of this.#planes.values()) this.#revive(plane);
    for (const relay of this.#relays.values()) if (relay.reachable === 'down') relay.start();
    for (const client of this.#clients.values()) client.heal();
    for (const relay of this.#relays.values()) relay.turnGate('open');
    this.#endRollouts();
    for (const client of this.#clients.values()) client.rest(true);
    this.#loop.advance(calmDown);
    const isTaken = this.#plan.planes.every(({ habits }) => habits.loads !== undefined);
    for (const client of this.#clients.values()) client.settle(isTaken);
    for (const relay of this.#relays.values()) relay.settle();
    const movable = this.#plan.relays.filter(({ endpoints }) => endpoints.length > 1);
    this.#ledger.settle(isTaken, new Set(movable.map(({ id }) => id)));
    const said = this.#received();
    const asked = this.#asked();
    const disturbances = this.#disturbances();
    this.#loop.advance(silence);
    // A relay that comes back to the endpoint that it prefers may be told there why something is missing.
    if (this.#received() !== said && this.#disturbances() === disturbances)
      throw new Violation(5, 'clients are told something, though nothing happens');
    // With several endpoints, a relay may still be on its way back to the preferred one.
    if (movable.length === 0 && this.#asked() !== asked) {
      throw new Violation(5, 'control planes are asked something, though nothing happens');
    }
    for (const relay of this.#relays.values()) {
      relay.turnGate('close');
      relay.rollout?.close();
    }
    for (const client of this.#clients.values()) client.rest(false);
    // What a client reports first is in part about the time in which it rested.
    if (this.#plan.relays.some(({ rollout }) => rollout?.traffic === true)) this.#loop.advance(restedMs);
    this.#caused.clear();
  }

  /** Rollouts come to their end by themselves, and then everybody gets what upstream says. */
  #endRollouts(): void {
    const relays = [...this.#relays.values()].filter(({ plan }) => plan.rollout !== undefined);
    if (relays.length === 0) return;
    for (const relay of relays) {
      relay.checksSay('GOOD');
      relay.operate('unfreeze');
    }
    for (let count = 0; count < promotions; count++) {
      this.#loop.advance(wavesMs / promotions);
      for (const relay of relays) if (relay.plan.rollout?.mode === 'MANUAL') relay.operate('promote');
    }
    for (const relay of relays) {
      relay.rollout?.settle(this.#caused);
      relay.rollout?.checkDiscarded(
        this.#caused,
        (kind, name, content, isThere) =>
          this.#clients
            .values()
            .find(
              (client) => client.running && client.host === relay && client.has(kind, name, content, isThere),
            )?.plan.id,
      );
      relay.openRollout();
    }
  }

  #received(): number {
    let sum = 0;
    for (const { received } of this.#clients.values()) sum += received;
    return sum;
  }

  #disturbances(): number {
    let sum = 0;
    for (const { disturbances } of this.#relays.values()) sum += disturbances;
    return sum;
  }

  #asked(): number {
    let sum = 0;
    for (const { received } of this.#planes.values()) sum += received;
    return sum;
  }

  #note(line: () => string): void {
    if (!this.#write) return;
    const at = ((this.#loop.now() - this.#startedAt) / 1000).toFixed(3).padStart(9);
    this.#transcript.push(`${at}  ${line()}`);
  }
}

function describeVariant({ constraints, content }: Variant): string {
  return `${constraints.label}:${content}`;
}

function describeStep(step: Step): string {
  const { kind, wait: _, ...rest } = step;
  const details = Object.entries(rest).map(([key, value]) => `${key} ${JSON.stringify(value)}`);
  return [kind, ...details].join(', ');
}
