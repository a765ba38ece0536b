import { createHmac } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { notifiedEvents } from '../model/rollout.ts';
import { printable, shorten } from '../model/text.ts';
import { readToken } from '../wire/named-file.ts';
import type { HoldCause } from './judge.ts';
import { askWeb, type WebPeer } from './web-request.ts';

/** As configured (`rollout.notify[]`). */
export interface NotifySettings extends WebPeer {
  /** A file whose text is the key of the signature; read for each request. Undefined: nothing is signed. */
  readonly hmacFile?: string | undefined;
  readonly events: readonly RolloutNews['event'][];
}

/** What has become of a change. */
export interface RolloutNews {
  readonly event: (typeof notifiedEvents)[number];
  /** Of HELD and RESOLVED, and of DISCARDED by `on_failure`. */
  readonly cause?: HoldCause | undefined;
  readonly reason?: string | undefined;
  readonly upstreams: readonly string[];
  /** Short names. */
  readonly types: readonly string[];
  /** At most 100. */
  readonly names: readonly string[];
  /** How many there are. */
  readonly count: number;
}

/** One was taken, or was given up: why. */
type Told = (host: string, result: Result<undefined>) => void;

/** For each request, in milliseconds. */
const timeoutMs = 10_000;
/** The first wait before another attempt, in milliseconds; then twice as long each time. */
const firstRetryMs = 1000;
const attempts = 6;
/** What waits for one server. What is older is given up. */
const mostWaiting = 100;
/** Characters of a reason. */
const longestReason = 1000;

/** Tells servers what becomes of changes: each one in its order, again until it is taken or given up. */
export class Notifications {
  readonly clock: Clock;
  readonly #relay: string;
  readonly told: Told;
  #receivers: readonly Receiver[] = [];

  /** `relay`: its `node.id`. */
  constructor(settings: readonly NotifySettings[], clock: Clock, relay: string, told: Told) {
    this.clock = clock;
    this.#relay = relay;
    this.told = told;
    this.reload(settings);
  }

  /** A server that is the same keeps what waits for it. */
  reload(settings: readonly NotifySettings[]): void {
    const before = this.#receivers;
    this.#receivers = settings.map(
      (one) =>
        before.find((receiver) => isDeepStrictEqual(receiver.settings, one)) ?? new Receiver(one, this),
    );
    for (const receiver of before) if (!this.#receivers.includes(receiver)) receiver.stop();
  }

  tell(news: RolloutNews): void {
    if (this.#receivers.length === 0) return;
    const relay = this.#relay;
    const reason = news.reason === undefined ? undefined : shorten(printable(news.reason), longestReason);
    const time = new Date(this.clock.now()).toISOString();
    const body = JSON.stringify({ text: textOf({ ...news, reason }, relay), ...news, reason, relay, time });
    for (const receiver of this.#receivers) receiver.tell(news.event, body);
  }

  stop(): void {
    this.reload([]);
  }
}

/** One server. */
class Receiver {
  readonly settings: NotifySettings;
  readonly #owner: Notifications;
  readonly #waiting: string[] = [];
  #isSending = false;
  #isOver = false;

  constructor(settings: NotifySettings, owner: Notifications) {
    this.settings = settings;
    this.#owner = owner;
  }

  tell(event: RolloutNews['event'], body: string): void {
    if (!this.settings.events.includes(event)) return;
    if (this.#waiting.length >= mostWaiting) {
      this.#waiting.shift();
      this.#tellResult(fail(`${mostWaiting} others wait`));
    }
    this.#waiting.push(body);
    if (!this.#isSending) void this.#sendAll();
  }

  stop(): void {
    this.#isOver = true;
    this.#waiting.length = 0;
  }

  async #sendAll(): Promise<void> {
    this.#isSending = true;
    for (let body = this.#waiting.shift(); body !== undefined; body = this.#waiting.shift())
      this.#tellResult(await this.#send(body));
    this.#isSending = false;
  }

  async #send(body: string): Promise<Result<undefined>> {
    let waitMs = firstRetryMs;
    for (let attempt = 1; ; attempt++) {
      const sent = await this.#ask(body);
      if (sent.ok || attempt === attempts) return sent;
      await new Promise<void>((resolve) => void this.#owner.clock.after(waitMs, resolve));
      if (this.#isOver) return sent;
      waitMs *= 2;
    }
  }

  async #ask(body: string): Promise<Result<undefined>> {
    const { url, hmacFile } = this.settings;
    const { clock } = this.#owner;
    const key = hmacFile === undefined ? undefined : readToken(hmacFile);
    if (key?.ok === false) return fail(`hmac_file ${key.error}`);
    const headers = key === undefined ? {} : signed(body, key.value, Math.floor(clock.now() / 1000));
    const request = { url: new URL(url), method: 'POST', headers, body, readsBody: false } as const;
    const answer = await askWeb(this.settings, { ...request, clock, timeoutMs, isUnref: true });
    if (!answer.ok) return answer;
    const { status } = answer.value;
    return status >= 200 && status < 300 ? ok(undefined) : fail(`it answered ${status}`);
  }

  #tellResult(result: Result<undefined>): void {
    if (!this.#isOver) this.#owner.told(new URL(this.settings.url).host, result);
  }
}

/** `timestamp`: seconds since the epoch, so that nobody can send an old one again. */
const signed = (body: string, key: string, timestamp: number) => ({
  'x-distributary-timestamp': String(timestamp),
  'x-distributary-signature': `sha256=${createHmac('sha256', key).update(`${timestamp}.${body}`).digest('hex')}`,
});

const verbs = {
  HELD: 'is held',
  DISCARDED: 'was discarded',
  RELEASED: 'goes to everybody',
  RESOLVED: 'is not held any more',
} as const;

/** One line for people. Slack reads `<!channel>` and links in it, and some of its words are a client's. */
function textOf({ event, reason, upstreams, types, names, count }: RolloutNews, relay: string): string {
  const [first = ''] = names;
  const what = count === 1 ? printable(first) : `${count} names, ${printable(first)} among them`;
  const why = reason === undefined || reason === '' ? '' : `: ${reason}`;
  const line = `${relay}: a change of ${upstreams.join(', ')} (${types.join(', ')}: ${what}) ${verbs[event]}${why}`;
  return line.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
