import type { TrafficJudge } from '../assembly/load-reports.ts';
import type { Config } from '../config/config.ts';
import type { Clock } from '../model/clock.ts';
import type { ReportedTraffic } from '../model/load.ts';
import type { ToPrimary } from './ipc-messages.ts';

/** Reports of many clients come together, in milliseconds. */
const tellMs = 200;

/** Tells the primary, which judges changes, what the clients of this worker report of their traffic. */
export class TrafficReporter implements TrafficJudge {
  intervalMs: number | undefined;
  readonly #clock: Clock;
  readonly #send: (message: ToPrimary) => void;
  #reports: ReportedTraffic[] = [];
  #left: string[] = [];

  constructor(config: Config, clock: Clock, send: (message: ToPrimary) => void) {
    this.reload(config);
    this.#clock = clock;
    this.#send = send;
  }

  reload({ rollout }: Config): void {
    this.intervalMs = rollout?.traffic?.intervalMs;
  }

  add(report: ReportedTraffic): void {
    this.#later();
    this.#reports.push(report);
  }

  left(stream: string): void {
    if (this.intervalMs === undefined) return;
    this.#later();
    this.#left.push(stream);
  }

  #later(): void {
    if (this.#reports.length + this.#left.length > 0) return;
    this.#clock.after(tellMs, () => this.tell());
  }

  /** Before the primary hears what came later. */
  tell(): void {
    if (this.#reports.length + this.#left.length === 0) return;
    this.#send({ kind: 'traffic', reports: this.#reports, left: this.#left });
    this.#reports = [];
    this.#left = [];
  }
}
