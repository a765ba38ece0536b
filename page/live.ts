import { useEffect, useState } from 'preact/hooks';
import type { PageModel } from '../src/admin/page/page-model.ts';
import type { Figure } from '../src/observe/figures.ts';
import type { Query } from './location.ts';
import { trusted } from './trusted.ts';

export interface LiveState {
  readonly model: PageModel;
  readonly figures: readonly Figure[];
  readonly paused: boolean;
  /** Since when the relay has not been heard, in milliseconds since the epoch; 0: it is heard. */
  readonly lostSince: number;
  /** Why the relay does not serve this page; empty: it does. */
  readonly refused: string;
}

/** What a part of the overview is given. */
export interface PartProps {
  readonly model: PageModel;
  readonly query: Query;
  readonly isLive: boolean;
}

/** Points of the charts that are kept: five minutes. */
const kept = 60;
/** The relay says something at least every 10 s. A page that is refused asks again after as long. */
const silentMs = 30_000;
const retryMs = 3000;

/** The state of the relay, by server-sent events. A page that is hidden or paused listens to nothing. */
export class Live {
  #state: LiveState;
  readonly #changed = new Set<() => void>();
  #source: EventSource | undefined;
  #heardAt = Date.now();

  constructor(first: Pick<LiveState, 'model' | 'figures'>) {
    this.#state = { ...first, paused: false, lostSince: 0, refused: '' };
    document.addEventListener('visibilitychange', () => this.#follow());
    setInterval(() => this.#watch(), retryMs);
    this.#follow();
  }

  get state(): LiveState {
    return this.#state;
  }

  pause(paused: boolean): void {
    this.#set({ paused, lostSince: 0, refused: '' });
    this.#follow();
  }

  onChange(changed: () => void): () => void {
    this.#changed.add(changed);
    return () => this.#changed.delete(changed);
  }

  #follow(): void {
    const wanted = !this.#state.paused && document.visibilityState === 'visible';
    if (wanted === (this.#source !== undefined)) return;
    if (wanted) {
      this.#open();
      return;
    }
    this.#source?.close();
    this.#source = undefined;
  }

  #open(): void {
    this.#source?.close();
    this.#heardAt = Date.now();
    const source = new EventSource('events');
    this.#source = source;
    source.addEventListener('open', () => this.#heard({}));
    source.addEventListener('model', ({ data }) => {
      this.#heard({ model: trusted<PageModel>(JSON.parse(String(data))), refused: '' });
    });
    source.addEventListener('figures', ({ data }) => {
      const points = trusted<readonly Figure[]>(JSON.parse(String(data)));
      const last = this.#state.figures.at(-1)?.at ?? 0;
      const newer = points.filter(({ at }) => at > last);
      this.#heard({ figures: [...this.#state.figures, ...newer].slice(-kept) });
    });
    source.addEventListener('full', ({ data }) => {
      source.close();
      this.#heard({ refused: String(data) });
    });
    source.addEventListener('error', () => this.#lost());
  }

  #heard(news: Partial<LiveState>): void {
    this.#heardAt = Date.now();
    this.#set({ ...news, lostSince: 0 });
  }

  #lost(): void {
    if (this.#state.lostSince === 0) this.#set({ lostSince: this.#heardAt });
  }

  #watch(): void {
    if (this.#source === undefined) return;
    const isSilent = Date.now() - this.#heardAt > silentMs;
    const { refused } = this.#state;
    if (isSilent && refused === '') this.#lost();
    if (isSilent || (refused === '' && this.#source.readyState === EventSource.CLOSED)) {
      const { lostSince } = this.#state;
      this.#open();
      this.#set({ lostSince });
    }
  }

  #set(news: Partial<LiveState>): void {
    this.#state = { ...this.#state, ...news };
    for (const changed of this.#changed) changed();
  }
}

export function useLive(live: Live): LiveState {
  const [state, setState] = useState(live.state);
  useEffect(() => live.onChange(() => setState(live.state)), [live]);
  return state;
}

/** A number that grows every so many milliseconds while the page is live. */
export function useTicks(everyMs: number, active: boolean): number {
  const [ticks, setTicks] = useState(0);
  useEffect(() => {
    if (!active) return undefined;
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') setTicks((before) => before + 1);
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs, active]);
  return ticks;
}
