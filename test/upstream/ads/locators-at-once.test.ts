import { Random } from '../../support/random.ts';
import { Conversation } from './transcript.ts';

/** One resource of the control plane. `env`: constrained to this value, or (`none`) to its absence. */
interface Resource {
  readonly name: string;
  readonly env?: string;
  readonly content: string;
}

/** What somebody subscribes to. */
interface Asked {
  readonly selector: string;
  readonly env: string | undefined;
}

interface Habits {
  readonly versions: 'of the content' | 'numbered' | 'none';
  /** A response for each subscription, or for each request. */
  readonly answers: 'subscription' | 'request';
  /** Of an empty glob: its URL, its URL with constraints, or an empty response. */
  readonly empty: 'url' | 'constrained url' | 'nothing';
}

interface Response {
  readonly at: number;
  readonly items: readonly string[];
  /** What it answers; an update answers nothing. */
  readonly answers: readonly string[];
}

const collection = 'xdstp://x/envoy.config.cluster.v3.Cluster/dir';
const query = 'a=1&b=2';
const glob = `${collection}/*?${query}`;
const member = (id: string): string => `${collection}/${id}?${query}`;

const both = (env: string, content: string): Resource[] =>
  [member('m'), 'public'].map((name) => ({ name, env, content }));
const worlds: Readonly<Record<string, readonly Resource[]>> = {
  'one for all': [
    { name: member('m'), content: 'all' },
    { name: 'public', content: 'all' },
  ],
  'one more for prod': [
    { name: member('m'), content: 'all' },
    { name: member('n'), env: 'prod', content: 'prod' },
    { name: 'public', content: 'all' },
  ],
  variants: [...both('none', 'none'), ...both('prod', 'prod')],
  'one for prod alone': both('prod', 'prod'),
  'one for those without parameters': both('none', 'none'),
  nothing: [],
  // No control plane should: two variants match prod. It sends the closer one.
  'one for all, and another for prod': [
    { name: member('m'), content: 'all' },
    { name: 'public', content: 'all' },
    ...both('prod', 'prod'),
  ],
};

const keyOf = ({ selector, env }: Asked): string =>
  env === undefined ? selector : `${selector}(env=${env})`;

/** Of each name the closest variant. */
function visible(resources: readonly Resource[], { selector, env }: Asked): Resource[] {
  const found = new Map<string, Resource>();
  for (const resource of resources) {
    if (selector === glob ? !resource.name.startsWith(collection) : resource.name !== selector) continue;
    if (resource.env === undefined || resource.env === (env ?? 'none')) found.set(resource.name, resource);
  }
  return [...found.values()];
}

function askedIn(request: string): Asked[] {
  const words = /\+\[([^\]]*)\]/.exec(request)?.[1]?.split(' ') ?? [];
  return words.map((word) => {
    const [selector = '', env] = word.replace(')', '').split('(env=');
    return { selector, env };
  });
}

/** A control plane that answers after a while, in order. */
class Plane {
  readonly #random: Random;
  readonly #habits: Habits;
  resources: readonly Resource[];
  /** On their way. */
  responses: Response[] = [];
  #asked: Asked[] = [];
  #last = 0;
  #number = 0;

  constructor(random: Random, habits: Habits, resources: readonly Resource[]) {
    this.#random = random;
    this.#habits = habits;
    this.resources = resources;
  }

  request(line: string, now: number): void {
    const asked = askedIn(line);
    if (asked.length === 0) return;
    this.#asked.push(...asked);
    const delay = this.#random.below(25);
    if (this.#habits.answers === 'request') this.#send(asked, now + delay);
    else for (const one of asked) this.#send([one], now + delay + this.#random.below(10));
  }

  /** Another content of one resource, told to whom it was told before. */
  change(now: number): void {
    if (this.resources.length === 0) return;
    const old = this.#random.pick(this.resources);
    const changed = { ...old, content: `${old.content}${this.#random.below(100)}` };
    this.resources = this.resources.map((one) => (one === old ? changed : one));
    const isTold = this.#asked.some((one) => visible(this.resources, one).includes(changed));
    if (isTold) this.#enqueue([this.#item(changed)], [], now + this.#random.below(25));
  }

  newStream(now: number): void {
    this.responses = [];
    this.#asked = [];
    this.#last = now;
  }

  #send(asked: readonly Asked[], at: number): void {
    const found = new Set(asked.flatMap((one) => visible(this.resources, one)));
    const missing = asked.filter((one) => visible(this.resources, one).length === 0);
    const removed = new Set(missing.map((one) => this.#missing(one)));
    removed.delete('');
    const items = [...[...found].map((one) => this.#item(one)), ...removed];
    this.#enqueue(items, asked.map(keyOf), at);
  }

  #enqueue(items: readonly string[], answers: readonly string[], at: number): void {
    this.#last = Math.max(this.#last, at);
    this.responses.push({ at: this.#last, items, answers });
  }

  #missing({ selector, env }: Asked): string {
    if (selector !== glob || this.#habits.empty === 'url') return `-${selector}`;
    return this.#habits.empty === 'nothing' ? '' : `-${selector}${constrained(env ?? 'none')}`;
  }

  #item({ name, env, content }: Resource): string {
    // Whoever spells parameters in another order means the same resource. The body has the name, too: where there are no
    // versions either, that would be another content.
    const isOther = this.#habits.versions === 'of the content' && this.#random.chance(0.5);
    const spelled = isOther ? name.replace(query, 'b=2&a=1') : name;
    const version = { 'of the content': `@v${content}`, numbered: `@${++this.#number}`, none: '' };
    const constraints = env === undefined ? '' : constrained(env);
    return `${spelled}${constraints}:${content}${version[this.#habits.versions]}`;
  }
}

const constrained = (env: string): string => (env === 'none' ? '{!env}' : `{env=${env}}`);

/** Clients that come within moments, in some order: what they subscribe to, and when each is answered. */
class Arrival {
  readonly #conversation = new Conversation('delta', 'native', '');
  readonly #random: Random;
  readonly #plane: Plane;
  readonly #waiting: Set<string>;
  /** What the control plane has answered on this stream. */
  readonly #answered = new Set<string>();
  readonly transcript: string[] = ['session delta native'];
  readonly faults: string[] = [];
  renewals = 0;
  #now = 0;
  #nonce = 0;

  constructor(random: Random, plane: Plane, wanted: readonly Asked[]) {
    this.#random = random;
    this.#plane = plane;
    // A client has a name as soon as there is a resource for it.
    this.#waiting = new Set(wanted.filter(({ selector }) => selector === glob).map(keyOf));
  }

  run(order: readonly Asked[], changes: number): void {
    let changesLeft = changes;
    this.#say('connect');
    for (let next = 0; next < order.length; ) {
      const together = order.slice(next, next + 1 + this.#random.below(2));
      next += together.length;
      for (const { selector, env } of together)
        this.#say(`subscribe cds ${selector}${env === undefined ? '' : ` env=${env}`}`);
      this.#say('flush');
      if (changesLeft > 0 && this.#random.chance(0.5)) {
        changesLeft--;
        this.#plane.change(this.#now);
      }
      // Now and then the next ones come when these are answered.
      this.#pass(this.#random.chance(0.3) ? 400 : this.#random.below(25));
    }
    // The answers, and the quiet after them; after a change perhaps a new stream (protocol §5b.2).
    this.#pass(changes > 0 ? 2_500 : 0);
    this.#pass(60);
    this.#pass(320);
    if (this.#waiting.size > 0) this.faults.push(`not answered: ${[...this.#waiting].join(', ')}`);
    if (changes === 0 && this.renewals > 0) this.faults.push('a new stream');
  }

  #pass(milliseconds: number): void {
    const end = this.#now + milliseconds;
    for (let next = this.#plane.responses[0]; next !== undefined && next.at <= end; ) {
      this.#plane.responses.shift();
      this.#wait(next.at);
      for (const answered of next.answers) this.#answered.add(answered);
      this.#say(`< cds ${next.at} n${++this.#nonce} ${next.items.join(' ')}`.trimEnd());
      next = this.#plane.responses[0];
    }
    this.#wait(end);
  }

  #wait(until: number): void {
    if (until > this.#now) this.#say(`wait ${until - this.#now}ms`);
    this.#now = Math.max(this.#now, until);
  }

  #say(line: string): void {
    this.transcript.push(line);
    const heard = this.#conversation.say(line);
    this.transcript.push(...heard);
    for (const one of heard) {
      if (one.startsWith('>')) this.#plane.request(one, this.#now);
      this.#settled(/settled \[(.*)\]$/.exec(one)?.[1]?.split(' ') ?? []);
    }
    if (!heard.some((one) => one.startsWith('* renew'))) return;
    this.renewals++;
    this.#plane.newStream(this.#now);
    this.#answered.clear();
    this.#say('disconnect');
    this.#say('connect');
  }

  #settled(settled: readonly string[]): void {
    for (const one of settled) {
      if (this.#waiting.delete(one) && !this.#answered.has(one))
        this.faults.push(`answered before its answer: ${one}`);
    }
  }
}

function arrive(seed: number, habits: Habits, resources: readonly Resource[], changes: number): void {
  const random = new Random(seed);
  const envs = random.chance(0.3) ? [undefined, 'prod', 'test'] : [undefined, 'prod'];
  const wanted = envs.flatMap((env) => [glob, 'public'].map((selector): Asked => ({ selector, env })));
  const places = wanted.map((one) => ({ one, place: random.next() }));
  const order = places.toSorted((a, b) => a.place - b.place).map(({ one }) => one);
  const arrival = new Arrival(random, new Plane(random, habits, resources), wanted);
  arrival.run(order, changes);
  if (arrival.faults.length === 0) return;
  throw new Error(`seed ${seed}: ${arrival.faults.join('; ')}\n${arrival.transcript.join('\n')}`);
}

describe('5b.12 globs and names, with parameters and without, subscribed within moments', () => {
  for (const [world, resources] of Object.entries(worlds)) {
    for (const answers of ['subscription', 'request'] as const) {
      for (const versions of ['of the content', 'numbered', 'none'] as const) {
        for (const empty of ['url', 'constrained url', 'nothing'] as const) {
          // Of an empty glob it would say nothing at all, where a name of the same request is missing.
          if (answers === 'request' && empty === 'nothing') continue;
          const habits = { answers, versions, empty };
          it(`${world}; a response for each ${answers}, versions ${versions}, an empty glob: ${empty}`, () => {
            for (let seed = 0; seed < 40; seed++) arrive(seed, habits, resources, 0);
            for (let seed = 0; seed < 20; seed++) arrive(1000 + seed, habits, resources, 2);
          });
        }
      }
    }
  }
});
