import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { placeOf } from '../../../src/model/node-path.ts';
import { ConstantRequests } from './constant-requests.ts';
import { Envoy } from './envoy.ts';
import { eventually } from './eventually.ts';
import type { Setting } from './setting.ts';

const size = 10;
const ids: readonly string[] = Array.from({ length: size }, (_, index) => `envoy-${index + 1}`);
/** Requests to each: enough that some are under way at any change. As fast as they are answered took half of a test's CPU. */
const perSecond = 50;
const patience = { timeout: 60_000 };
/** What each request is answered while nothing is broken. */
const good = '200 two';

/** The nodes that are canaries if there are so many: the first by the hash of the node id. */
export const canariesOf = (count: number): ReadonlySet<string> =>
  new Set(ids.toSorted((a, b) => placeOf(a) - placeOf(b)).slice(0, count));

const linesOf = (dump: string): string => dump.replaceAll(/,$/gm, '').split('\n').toSorted().join('\n');

export interface FleetOptions {
  /** More of each bootstrap. */
  readonly bootstrap?: object;
  /** Requests to each in a second. */
  readonly rate?: number;
  /** Left out: on one connection for each. */
  readonly keepAlive?: boolean;
  /** Of each node, by its id. */
  readonly metadataOf?: (id: string) => object;
}

/** Ten Envoys of one class under constant requests, SotW and delta. */
export class EnvoyFleet implements AsyncDisposable {
  readonly envoys: ReadonlyMap<string, Envoy>;
  readonly #requests: ReadonlyMap<string, ConstantRequests>;
  readonly #rate: number;
  readonly #stack: AsyncDisposableStack;

  private constructor(
    envoys: ReadonlyMap<string, Envoy>,
    requests: ReadonlyMap<string, ConstantRequests>,
    rate: number,
    stack: AsyncDisposableStack,
  ) {
    this.#rate = rate;
    this.envoys = envoys;
    this.#requests = requests;
    this.#stack = stack;
  }

  /** The control plane behind the xDS server has a good site (see sites.ts). */
  static async start(
    { envoyBinary }: Setting,
    xds: string,
    { bootstrap = {}, rate = perSecond, keepAlive = true, metadataOf = () => ({}) }: FleetOptions = {},
  ): Promise<EnvoyFleet> {
    await using stack = new AsyncDisposableStack();
    const envoys = new Map<string, Envoy>();
    for (const [index, id] of ids.entries()) {
      const transport = index % 3 === 0 ? 'ads-sotw' : 'ads-delta';
      const metadata = metadataOf(id);
      envoys.set(id, stack.use(await Envoy.start(envoyBinary, { xds, transport, id, bootstrap, metadata })));
    }
    const requests = new Map<string, ConstantRequests>();
    for (const [id, envoy] of envoys) {
      await envoy.answers('web', '/office', 'two', patience.timeout);
      const url = new URL('/office', await envoy.url('web'));
      requests.set(id, stack.use(new ConstantRequests(url.href, 1, rate, keepAlive)));
    }
    return new EnvoyFleet(envoys, requests, rate, stack.move());
  }

  /** The configuration of each with the times of its updates, by lines: Envoy writes maps in any order. */
  async dumps(except: ReadonlySet<string> = new Set()): Promise<ReadonlyMap<string, string>> {
    const asked = [...this.envoys].filter(([id]) => !except.has(id));
    return new Map(
      await Promise.all(asked.map(async ([id, envoy]) => [id, linesOf(await envoy.configDump())] as const)),
    );
  }

  /** Waits until each has the routes with this mark. */
  async allHave(mark: string): Promise<void> {
    for (const [id, envoy] of this.envoys) {
      await eventually(async () => expect(await envoy.configDump(), id).to.contain(`"/${mark}"`), patience);
    }
  }

  /** What the others were answered besides what they must be, since the start: nothing. */
  failures(canaries: ReadonlySet<string>): readonly string[] {
    return [...this.#requests]
      .filter(([id]) => !canaries.has(id))
      .flatMap(([id, { answers }]) =>
        [...answers]
          .filter(([answer]) => answer !== good)
          .map(([answer, count]) => `${id}: ${count} × ${answer}`),
      );
  }

  /** Waits until these answer as before again, for a second. */
  async serves(ids: ReadonlySet<string>): Promise<void> {
    const answered = (id: string): number => this.#requests.get(id)?.answers.get(good) ?? 0;
    for (const id of ids)
      await eventually(async () => {
        const before = answered(id);
        await sleep(1000);
        expect(answered(id) - before, id).to.be.above(this.#rate / 2);
      }, patience);
  }

  get requests(): number {
    return [...this.#requests.values()].reduce((sum, { count }) => sum + count, 0);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stack.disposeAsync();
  }
}
