import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import { type Clock, type Timer, WallTime } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { checkStates } from '../model/rollout.ts';
import { printable, shorten, unknownWord } from '../model/text.ts';
import { type HeardChange, type Opinion, together, type VerdictSource } from './changes.ts';
import { askWeb, type WebAnswer, type WebPeer, type WebRequest } from './web-request.ts';

/** As configured (`rollout.checks[]`). Times are milliseconds. */
export interface CheckSettings {
  readonly name: string;
  readonly intervalMs: number;
  readonly timeoutMs: number;
  /** BAD so many times in a row, it is bad. */
  readonly failures: number;
  /** Undefined: a webhook. One of `min` and `max` is there. Both are accepted values. */
  readonly prometheus?:
    | (WebPeer & {
        readonly query: string;
        readonly min?: number | undefined;
        readonly max?: number | undefined;
      })
    | undefined;
  readonly webhook?: WebPeer | undefined;
}

type PrometheusCheck = NonNullable<CheckSettings['prometheus']>;

/** What a check says at one time. */
export interface CheckAnswer {
  readonly state: (typeof checkStates)[number];
  /** Of Prometheus; undefined: there is none. */
  readonly value: number | undefined;
  /** For people. */
  readonly reason: string;
}

/** Where a check stands. */
type CheckState = Readonly<ReturnType<Check['state']>>;

interface ChecksOptions {
  readonly clock: Clock;
  /** JSON of what waits, for webhooks. */
  readonly subject: () => unknown;
  /** A check has answered. */
  readonly changed: () => void;
  /** How one is asked; it always answers, within `timeout`. Left out: by HTTP. */
  readonly ask?: (settings: CheckSettings, answered: (answer: CheckAnswer) => void) => void;
}

/** Answers that are kept; `failures` has at most as many. */
const mostKept = 60;
/** Characters of what others say. */
const longestReason = 300;

const unasked: CheckAnswer = { state: 'UNKNOWN', value: undefined, reason: 'not asked yet' };

/**
 * Asks servers and webhooks whether all is well, every `interval` while a change waits. What was answered for an earlier
 * change says nothing about this one: each time something begins to wait, they begin anew.
 */
export class Checks implements VerdictSource {
  readonly #options: Required<ChecksOptions>;
  readonly #wallTime: WallTime;
  #checks: readonly Check[];
  #waits = false;

  constructor(settings: readonly CheckSettings[], options: ChecksOptions) {
    const ask: ChecksOptions['ask'] = (one, answered) => void askCheck(one, options).then(answered);
    this.#options = { ask, ...options };
    this.#wallTime = new WallTime(options.clock);
    this.#checks = settings.map((one) => new Check(one, this.#options));
  }

  /** Something waits, or nothing does any more. */
  waiting(waits: boolean): void {
    if (waits === this.#waits) return;
    this.#waits = waits;
    for (const check of this.#checks) {
      if (waits) check.start();
      else check.stop();
    }
  }

  /** A check that is the same goes on. */
  reload(settings: readonly CheckSettings[]): void {
    const kept = settings.map((one) => this.#checks.find((check) => isDeepStrictEqual(check.settings, one)));
    for (const check of this.#checks) if (!kept.includes(check)) check.stop();
    this.#checks = settings.map((one, index) => kept[index] ?? new Check(one, this.#options));
    if (!this.#waits) return;
    for (const check of this.#checks) if (!kept.includes(check)) check.start();
  }

  look(changes: readonly HeardChange[]): readonly Opinion[] {
    return changes.map(({ change }) => this.opinionOn(change.keys, change.judge.shownSince));
  }

  /** By what was asked since the wave began, by `Clock.monotonic()`. */
  opinionOn(names: ReadonlySet<string>, since: number): Opinion {
    return together(this.#checks.map((check) => check.opinionOn(names, since)));
  }

  /** Times are milliseconds since the epoch. */
  states(): readonly CheckState[] {
    return this.#checks.map((check) => check.state(this.#wallTime));
  }

  /** Asks one now. What it says is not counted. The error: there is no such check. */
  async askNow(name: string): Promise<Result<CheckAnswer>> {
    const check = this.#checks.find(({ settings }) => settings.name === name);
    if (check !== undefined) return ok(await askCheck(check.settings, this.#options));
    const names = this.#checks.map(({ settings }) => settings.name);
    return fail(names.length === 0 ? 'rollout.checks has no checks' : unknownWord('check', name, names));
  }
}

/** One of them. */
class Check {
  readonly settings: CheckSettings;
  readonly #options: Required<ChecksOptions>;
  /** The last answers, the oldest first. */
  readonly #answers: (CheckAnswer & { readonly askedAt: number })[] = [];
  /** When the state of the last of them began. */
  #since: number;
  #bad = 0;
  /** Answers to an earlier one do not count. */
  #round = 0;
  #timer: Timer | undefined;

  constructor(settings: CheckSettings, options: Required<ChecksOptions>) {
    this.settings = settings;
    this.#options = options;
    this.#since = options.clock.monotonic();
  }

  start(): void {
    this.#round++;
    this.#answers.length = 0;
    this.#since = this.#options.clock.monotonic();
    this.#bad = 0;
    this.#ask(this.#round);
  }

  stop(): void {
    this.#round++;
    this.#timer?.cancel();
  }

  state(wallTime: WallTime) {
    const { name, prometheus } = this.settings;
    const { state, value, reason } = this.#answers.at(-1) ?? unasked;
    return {
      name,
      state,
      value,
      reason,
      /** When the state began. */
      since: wallTime.of(this.#since),
      /** How many times in a row it was BAD. */
      bad: this.#bad,
      /** The last answers, the oldest first, at most 60: for a chart. */
      recent: this.#answers.map((one) => ({ ...one, askedAt: wallTime.of(one.askedAt) })),
      /** Of `value`. */
      min: prometheus?.min,
      max: prometheus?.max,
    };
  }

  opinionOn(names: ReadonlySet<string>, since: number): Opinion {
    const { name, failures } = this.settings;
    const last = this.#answers.at(-1);
    if (last === undefined || last.askedAt < since)
      return { goodSince: undefined, waitsFor: `check ${name} has not answered yet` };
    const { state } = last;
    const row = this.#answers.slice(-failures);
    const isBad = row.length === failures && row.every((one) => one.state === 'BAD' && one.askedAt >= since);
    const times = failures === 1 ? '' : ` (${this.#bad} times in a row)`;
    const reason = `check ${name}: ${last.reason}${times}`;
    return {
      verdict: isBad ? { cause: 'check', reason, names } : undefined,
      goodSince: state === 'GOOD' ? Math.max(since, this.#since) : undefined,
      waitsFor: state === 'UNKNOWN' ? `check ${name} is UNKNOWN: ${last.reason}` : '',
    };
  }

  #ask(round: number): void {
    const askedAt = this.#options.clock.monotonic();
    this.#options.ask(this.settings, (answer) => {
      if (round === this.#round) this.#answered(answer, askedAt);
    });
  }

  /** Never two at once: the next one waits for a slow answer. */
  #answered(answer: CheckAnswer, askedAt: number): void {
    const { clock, changed } = this.#options;
    const round = this.#round;
    if (answer.state !== (this.#answers.at(-1) ?? unasked).state) this.#since = askedAt;
    this.#bad = answer.state === 'BAD' ? this.#bad + 1 : 0;
    this.#answers.push({ ...answer, askedAt });
    if (this.#answers.length > mostKept) this.#answers.shift();
    const { intervalMs } = this.settings;
    this.#timer = clock.after(askedAt + intervalMs - clock.monotonic(), () => this.#ask(round));
    changed();
  }
}

/** Asks once. It always answers, within `timeout`. */
export async function askCheck(
  { timeoutMs, prometheus, webhook }: CheckSettings,
  {
    clock,
    subject,
    isUnref = true,
  }: Pick<ChecksOptions, 'clock' | 'subject'> & Partial<Pick<WebRequest, 'isUnref'>>,
): Promise<CheckAnswer> {
  const times = { clock, timeoutMs, isUnref };
  if (prometheus !== undefined) {
    const url = queryUrl(prometheus);
    const answer = await askWeb(prometheus, { ...times, url, method: 'GET', readsBody: true });
    return answer.ok ? readPrometheus(answer.value, prometheus) : unknown(answer.error);
  }
  if (webhook === undefined) return unasked;
  const body = JSON.stringify(subject());
  const url = new URL(webhook.url);
  const answer = await askWeb(webhook, { ...times, url, method: 'POST', body, readsBody: false });
  return answer.ok ? readWebhook(answer.value) : unknown(answer.error);
}

/** The path of the URL stays before that of the API, as Prometheus has it behind a proxy. */
function queryUrl({ url, query }: PrometheusCheck): URL {
  const asked = new URL(url);
  asked.pathname = `${asked.pathname.replace(/\/+$/, '')}/api/v1/query`;
  asked.searchParams.set('query', query);
  return asked;
}

const unknown = (reason: string): CheckAnswer => ({
  state: 'UNKNOWN',
  value: undefined,
  // Twice: what is not printable takes long where there is much of it, and becomes longer.
  reason: shorten(printable(shorten(reason, longestReason)), longestReason),
});

function readWebhook({ status }: WebAnswer): CheckAnswer {
  if (status >= 200 && status < 300)
    return { state: 'GOOD', value: undefined, reason: `it answered ${status}` };
  if (status >= 400 && status < 600)
    return { state: 'BAD', value: undefined, reason: `it answered ${status}` };
  return unknown(otherStatus(status));
}

const otherStatus = (status: number): string =>
  status >= 300 && status < 400
    ? `it answered ${status}: redirects are not followed`
    : `it answered ${status}`;

/** Seconds since the epoch, and a number as text. */
const sample = z.tuple([z.number(), z.string()]);
const succeeded = z.object({
  status: z.literal('success'),
  data: z.discriminatedUnion('resultType', [
    z.object({ resultType: z.literal('scalar'), result: sample }),
    z.object({ resultType: z.literal('vector'), result: z.array(z.unknown()) }),
    z.object({ resultType: z.enum(['matrix', 'string']), result: z.unknown() }),
  ]),
});
const failed = z.object({ error: z.string() });
const withValue = z.object({ value: sample });

const form = 'it is neither a scalar nor a vector of one sample';

/** Prometheus' HTTP API, instant queries. */
function readPrometheus({ status, body, redact }: WebAnswer, bounds: PrometheusCheck): CheckAnswer {
  const json = parseJson(body, redact);
  if (status !== 200) {
    const said = failed.safeParse(json);
    return unknown(said.success ? `${otherStatus(status)}: ${said.data.error}` : otherStatus(status));
  }
  const read = succeeded.safeParse(json);
  if (!read.success) return unknown('its answer is not that of the Prometheus API (/api/v1/query)');
  const { data } = read.data;
  if (data.resultType === 'scalar') return compared(data.result[1], bounds);
  if (data.resultType !== 'vector') return unknown(`the result is a ${data.resultType}: ${form}`);
  if (data.result.length !== 1) {
    const count = data.result.length === 0 ? 'no sample' : `${data.result.length} samples`;
    return unknown(`the result has ${count}: expected one`);
  }
  const one = withValue.safeParse(data.result[0]);
  return one.success ? compared(one.data.value[1], bounds) : unknown(`the sample has no value: ${form}`);
}

function compared(text: string, { min, max }: PrometheusCheck): CheckAnswer {
  const value = numberOf(text);
  if (value === undefined || Number.isNaN(value))
    return unknown(`the value is ${JSON.stringify(shorten(text, 32))}: expected a number`);
  if (min !== undefined && value < min)
    return { state: 'BAD', value, reason: `${value} is less than min (${min})` };
  if (max !== undefined && value > max)
    return { state: 'BAD', value, reason: `${value} is more than max (${max})` };
  const within = [min === undefined ? [] : `min ${min}`, max === undefined ? [] : `max ${max}`].flat();
  return { state: 'GOOD', value, reason: `${value} is within ${within.join(', ')}` };
}

/** As Prometheus writes a number; undefined: it is none. */
function numberOf(text: string): number | undefined {
  if (/^\+?Inf$/.test(text)) return Number.POSITIVE_INFINITY;
  if (text === '-Inf') return Number.NEGATIVE_INFINITY;
  return /^[-+]?[\d.]+(e[-+]?\d+)?$/i.test(text) ? Number(text) : undefined;
}

/** Each text in it is redacted whole: what is cut first cannot be found in it. */
function parseJson(text: string, redact: (text: string) => string): unknown {
  try {
    return JSON.parse(text, (_, value: unknown) => (typeof value === 'string' ? redact(value) : value));
  } catch {
    return undefined;
  }
}
