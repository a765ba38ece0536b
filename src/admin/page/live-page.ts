import type { Clock, Timer } from '../../model/clock.ts';
import { printable } from '../../model/printable.ts';
import { Paced } from '../../model/time-slices.ts';
import type { Figure, PageModel } from './model.ts';

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

/** The model that all open pages share: it is made once for all of them, and not at all while nobody watches. */
export class LivePage {
  readonly #options: LivePageOptions;
  /** What each of them was sent last. */
  readonly #watchers = new Map<Watcher, { model: string; figures: number }>();
  /** As JSON. */
  readonly #model: Paced<string>;
  #timer: Timer | undefined;

  constructor(options: LivePageOptions) {
    this.#options = options;
    this.#model = new Paced(options.clock, async () => jsonOf(await options.model()));
  }

  /** As JSON; for a page that opens. */
  modelText(): Promise<string> {
    return this.#model.current();
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
      const text = await this.#model.current();
      for (const [watcher, sent] of this.#watchers) this.#send(watcher, sent, text);
    } catch (error) {
      failed(error);
    }
    if (this.#watchers.size === 0) return;
    this.#timer?.cancel(); // another page may have come meanwhile
    this.#timer = clock.after(this.#model.freshMs, () => void this.#tick());
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
}

const jsonOf = (model: PageModel): string =>
  JSON.stringify(model, (_key, value: unknown) => (typeof value === 'string' ? printable(value) : value));
