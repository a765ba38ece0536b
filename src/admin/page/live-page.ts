import type { Clock, Timer } from '../../model/clock.ts';
import { printable } from '../../model/printable.ts';
import type { Figure, PageModel } from './model.ts';

/**
 * At most so often, in milliseconds, a model is made while somebody watches. And it may take a two-hundredth of the time:
 * making it looks at every stream.
 */
const pace = { shortestMs: 2000, longestMs: 10_000, share: 200 };
/** More pages than this are not for people. */
const mostWatchers = 100;

/** A page that is open. */
export interface Watcher {
  /** `message`: of the event stream, whole. False: it is not read, so later ones are left out. */
  send(message: string): boolean;
}

export interface LivePageOptions {
  readonly clock: Clock;
  readonly model: () => Promise<PageModel>;
  readonly figures: () => readonly Figure[];
  /** It could not be made: that is a bug. */
  readonly failed: (error: unknown) => void;
}

interface Made {
  readonly at: number;
  /** Until then it is new enough, by the clock. */
  readonly until: number;
  readonly text: string;
}

/** The model that all open pages share: it is made once for all of them, and not at all while nobody watches. */
export class LivePage {
  readonly #options: LivePageOptions;
  /** What each of them was sent last. */
  readonly #watchers = new Map<Watcher, { model: string; figures: number }>();
  #made: Made | undefined;
  #making: Promise<Made> | undefined;
  #timer: Timer | undefined;

  constructor(options: LivePageOptions) {
    this.#options = options;
  }

  /** As JSON; for a page that opens. */
  async modelText(): Promise<string> {
    return (await this.#current()).text;
  }

  get figures(): readonly Figure[] {
    return this.#options.figures();
  }

  /** False: too many watch already. */
  watch(watcher: Watcher): boolean {
    if (this.#watchers.size >= mostWatchers) return false;
    this.#watchers.set(watcher, { model: '', figures: 0 });
    void this.#tick();
    return true;
  }

  leave(watcher: Watcher): void {
    this.#watchers.delete(watcher);
    if (this.#watchers.size === 0) this.#timer?.cancel();
  }

  async #tick(): Promise<void> {
    this.#timer?.cancel();
    const { clock, failed } = this.#options;
    try {
      const { text } = await this.#current();
      for (const [watcher, sent] of this.#watchers) this.#send(watcher, sent, text);
    } catch (error) {
      failed(error);
    }
    if (this.#watchers.size === 0) return;
    this.#timer?.cancel(); // another page may have come meanwhile
    const wait = Math.max(pace.shortestMs, (this.#made?.until ?? 0) - clock.monotonic());
    this.#timer = clock.after(wait, () => void this.#tick());
  }

  #send(watcher: Watcher, sent: { model: string; figures: number }, model: string): void {
    const points = this.figures.filter(({ at }) => at > sent.figures);
    const parts: string[] = [];
    if (model !== sent.model) parts.push(`event: model\ndata: ${model}\n\n`);
    if (points.length > 0) parts.push(`event: figures\ndata: ${JSON.stringify(points)}\n\n`);
    // A comment, so that a page sees that the relay is there.
    const message = parts.length === 0 ? ':\n\n' : parts.join('');
    if (!watcher.send(message)) return;
    sent.model = model;
    sent.figures = points.at(-1)?.at ?? sent.figures;
  }

  async #current(): Promise<Made> {
    const made = this.#made;
    if (made !== undefined && this.#options.clock.monotonic() < made.until) return made;
    this.#making ??= this.#make().finally(() => {
      this.#making = undefined;
    });
    return this.#making;
  }

  async #make(): Promise<Made> {
    const { clock, model } = this.#options;
    const at = clock.monotonic();
    const text = JSON.stringify(await model(), (_key, value: unknown) =>
      typeof value === 'string' ? printable(value) : value,
    );
    const now = clock.monotonic();
    const wait = Math.min(pace.longestMs, Math.max(pace.shortestMs, pace.share * (now - at)));
    this.#made = { at, until: now + wait, text };
    return this.#made;
  }
}
