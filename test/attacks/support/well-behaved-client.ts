import { eventually } from '../../e2e/support/eventually.ts';
import { type Received, XdsClient } from '../../e2e/support/xds-client.ts';
import { type BystanderData, type BystanderReport, stampOf, WELL_BEHAVED } from './bystander-messages.ts';
import { blame, type ProcessorTimes, processorTimes } from './processor-time.ts';
import { addressOf, secureAs } from './target.ts';

/** How often what came is looked at, in milliseconds. */
const glance = 10;
/** Between two questions where nobody sends updates, in milliseconds. */
const askEvery = 100;
/** An update that is later than that has not come, in milliseconds. */
const patience = 30_000;
/** So many glances back are known. */
const kept = patience / glance;

/** A client of a tenant that does nothing wrong, and measures how long updates take to it. */
export class WellBehavedClient {
  readonly #data: BystanderData;
  readonly #client: XdsClient;
  readonly #timer: NodeJS.Timeout;
  #arrived = 0;
  #worst = 0;
  #delay = 0;
  /** When the last one that arrived was sent. */
  #last = 0;
  #asked: number | undefined;
  /** What the relay had worked at each glance, of the last few seconds. */
  #worked: { readonly at: number; readonly times: ProcessorTimes }[] = [];

  constructor(data: BystanderData) {
    this.#data = data;
    const node = { id: WELL_BEHAVED, cluster: 'tenants', metadata: { env: 'prod' } };
    const { target, cluster } = data;
    this.#client = new XdsClient(addressOf(target), 'delta', { node, ...secureAs(target, 'tenant') });
    this.#client.subscribe('cds', [cluster]);
    this.#timer = setInterval(() => this.#look(), glance);
  }

  begin(): void {
    this.#look();
    [this.#arrived, this.#worst, this.#delay] = [0, 0, 0];
  }

  /** Something that was sent after now has arrived. Rejects with the reason if nothing does. */
  async getsSomething(): Promise<void> {
    const since = Date.now();
    const ended = await eventually(
      () => {
        this.#look();
        const { status } = this.#client;
        if (this.#last >= since || status !== undefined) return status;
        throw new Error(`nothing arrived for ${patience} ms`);
      },
      { timeout: patience, pause: glance },
    );
    if (ended !== undefined) throw new Error(`its stream ended: ${ended.details}`);
  }

  report(): BystanderReport['updates'] {
    return { arrived: this.#arrived, worst: this.#worst, delay: this.#delay };
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#client[Symbol.asyncDispose]();
  }

  #look(): void {
    const now = Date.now();
    const times = processorTimes(this.#data.target.pids);
    this.#worked.push({ at: now, times });
    if (this.#worked.length > 2 * kept) this.#worked = this.#worked.slice(-kept);
    for (const response of this.#client.received.splice(0)) {
      const sent = this.#data.updates ? this.#stamp(response) : this.#asked;
      if (sent === undefined) continue;
      this.#arrived++;
      const before = this.#worked.findLast(({ at }) => at <= sent) ?? this.#worked[0];
      const { work, delay } = blame(now - sent, before?.times ?? times, times);
      this.#worst = Math.max(this.#worst, work);
      this.#delay = Math.max(this.#delay, delay);
      this.#last = sent;
      this.#asked = undefined;
    }
    if (!this.#data.updates) this.#ask(now);
  }

  #stamp({ first }: Received): number | undefined {
    return stampOf(first.map((bytes) => bytes.toString('latin1')).join());
  }

  /** A name that is subscribed to again must be sent again (protocol §4.2), so there is always an answer. */
  #ask(now: number): void {
    if (this.#asked !== undefined || now - this.#last < askEvery) return;
    this.#asked = now;
    this.#client.delta('cds', { resourceNamesSubscribe: [this.#data.cluster] });
  }
}
