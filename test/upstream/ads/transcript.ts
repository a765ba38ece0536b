import { resourceName, typeUrl } from '../../../src/model/brand.ts';
import type { Timer } from '../../../src/model/clock.ts';
import { type Constraints, formatConstraints, UNCONSTRAINED } from '../../../src/model/constraints.ts';
import { internParameters } from '../../../src/model/parameters.ts';
import { type Interest, idOf, type Transaction } from '../../../src/model/transaction.ts';
import { typeInfo } from '../../../src/model/types.ts';
import { stampFor, unstamped } from '../../../src/upstream/ads/stamp.ts';
import type { MachineOptions } from '../../../src/upstream/ads/stream-effects.ts';
import { StreamMachine } from '../../../src/upstream/ads/stream-machine.ts';
import type { OutgoingRequest } from '../../../src/wire/request-writer.ts';
import { VirtualClock } from '../../support/virtual-clock.ts';
import { contentOf, deltaResponse, parseItem, sotwResponse, typeOf } from './responses.ts';

/**
 * Runs a conversation with a session machine, written as text:
 *
 *     subscribe TYPE SELECTOR [key=value&…]   and unsubscribe: what the relay wants; sent with the next `flush`
 *     connect | connect elsewhere             a stream is open: to the last endpoint, or to another one
 *     disconnect, flush, wait 15s | 300ms
 *     restored TYPE SELECTOR [key=value&…]    the cache has its answer from before a restart, until this is settled
 *     < TYPE VERSION NONCE ITEM…              a response, its items as in responses.ts
 *     < garbage                               bytes that are none
 *     turns N, before `session`               N entries of a response are read in one turn
 *     turn                                    the next turn
 *     session PROTOCOL [KEYS [key=value&…]]   the upstream decides by node, and these are the keys of the rules
 *     session PROTOCOL native                 it is sent parameters
 *     session delta relay                     the same, and it is a relay of ours
 *
 * and answers with what the machine does: `>` is a request, `=` a transaction, `*` a line in the log.
 */
export class Conversation {
  readonly #machine: StreamMachine;
  readonly #sotw: boolean;
  readonly #clock = new VirtualClock();
  readonly #timers = new Map<string, Timer>();
  readonly #restored = new Set<string>();
  #lines: string[] = [];

  constructor(
    protocol: 'sotw' | 'delta',
    variants: 'native' | 'relay' | readonly string[],
    parameters: string,
    entriesPerTurn = 1000,
  ) {
    this.#sotw = protocol === 'sotw';
    const isRelay = variants === 'relay';
    const holder = {
      upstream: 'test',
      ...(isRelay ? { exactParameters: parametersOf(parameters) } : {}),
    };
    const options: MachineOptions = {
      protocol: this.#sotw ? 'SOTW' : 'DELTA',
      holders: {
        wildcard: { key: 'w', role: 'wildcard', ...holder },
        named: { key: 'n', role: 'named', ...holder },
      },
      locators: typeof variants === 'string',
      stamp: typeof variants === 'string' ? unstamped : stampFor(variants, parametersOf(parameters)),
      maxConstraintDepth: 8,
      entriesPerTurn,
      resourceTimeoutMs: isRelay ? undefined : 15_000,
      isRestored: (interest) => this.#restored.has(idOf(interest)),
    };
    this.#machine = new StreamMachine(options);
  }

  /** What the machine does about one line. */
  say(line: string): string[] {
    this.#lines = [];
    const [verb, ...words] = line.split(/\s+/);
    switch (verb) {
      case 'subscribe':
      case 'unsubscribe':
        this.#machine[verb](interestOf(words));
        break;
      case 'restored':
        this.#restored.add(idOf(interestOf(words)));
        break;
      case 'connect':
        this.#machine.connect(words[0] !== 'elsewhere');
        break;
      case 'disconnect':
        for (const timer of this.#timers.values()) timer.cancel();
        this.#machine.disconnect();
        break;
      case 'flush':
        this.#machine.flush();
        break;
      case 'wait':
        this.#clock.advance(milliseconds(words[0] ?? ''));
        break;
      case 'turn':
        this.#run(this.#machine.readOn());
        break;
      case '<':
        this.#run(this.#machine.receive(this.#response(words)));
        break;
      default:
        throw new Error(`cannot read the line ${line}`);
    }
    this.#run();
    return this.#lines;
  }

  /** Bytes as they come. */
  receive(bytes: Buffer): string[] {
    this.#lines = [];
    this.#run(this.#machine.receive(bytes));
    return this.#lines;
  }

  #response([type = '', version = '', nonce = '', ...items]: readonly string[]): Buffer {
    if (type === 'garbage') return Buffer.from([0x0a, 0xff, 0x01]);
    const encode = this.#sotw ? sotwResponse : deltaResponse;
    const text = (word: string): string => (word === '-' ? '' : word);
    return encode(typeOf(type), text(version), nonce, items.map(parseItem));
  }

  #run(hasMore = false): void {
    for (const effect of this.#machine.ready()) {
      switch (effect.kind) {
        case 'send':
          this.#lines.push(`> ${formatRequest(effect.request)}`);
          break;
        case 'apply':
          this.#lines.push(`= ${formatTransaction(effect.transaction)}`);
          for (const interest of effect.transaction.resolved) this.#restored.delete(idOf(interest));
          break;
        case 'log':
          this.#lines.push(`* ${effect.message}`);
          break;
        case 'overdue':
          this.#lines.push('* overdue');
          break;
        case 'renew':
        case 'fail':
          this.#lines.push(`* ${effect.kind}: ${effect.reason}`);
          break;
        case 'timer':
          this.#setTimer(effect.timer, effect.milliseconds);
          break;
        case 'asked':
        case 'answered':
          break;
        default:
          throw new Error('an effect without a notation');
      }
    }
    if (hasMore) this.#lines.push('* a part is still to be read');
  }

  #setTimer(timer: string, after: number | undefined): void {
    this.#timers.get(timer)?.cancel();
    if (after === undefined) return;
    const fire = (): void => {
      this.#machine.fire(timer);
      this.#run();
    };
    this.#timers.set(timer, this.#clock.after(after, fire));
  }
}

/** The conversation of a file: its lines with what the machine does put after each; as it should be, the same text. */
export function replay(script: string): string {
  let conversation: Conversation | undefined;
  let entriesPerTurn = 1000;
  const lines: string[] = [];
  for (const line of script.split('\n')) {
    if (/^[>=*]/.test(line)) continue;
    lines.push(line);
    if (line === '' || line.startsWith('#')) continue;
    const [verb, protocol, variants = '', parameters = ''] = line.split(' ');
    if (verb === 'turns') {
      entriesPerTurn = Number(protocol);
      continue;
    }
    if (verb === 'session') {
      if (protocol !== 'sotw' && protocol !== 'delta') throw new Error(line);
      const keys = variants === '' ? [] : variants.split(',');
      conversation = new Conversation(
        protocol,
        variants === 'native' || variants === 'relay' ? variants : keys,
        parameters,
        entriesPerTurn,
      );
      continue;
    }
    if (conversation === undefined) throw new Error('a script begins with `session`');
    lines.push(...conversation.say(line));
  }
  return lines.join('\n');
}

function interestOf([type = '', selector = '', parameters = '']: readonly string[]): Interest {
  return { type: typeOf(type), selector: resourceName(selector), parameters: parametersOf(parameters) };
}

function parametersOf(text: string): Interest['parameters'] {
  const pairs = text.split('&').filter((pair) => pair !== '');
  return internParameters(
    pairs.map((pair) => {
      const [key = '', value = ''] = pair.split('=');
      return [key, value] as const;
    }),
  );
}

function milliseconds(text: string): number {
  return text.endsWith('ms') ? Number(text.slice(0, -2)) : Number(text.slice(0, -1)) * 1000;
}

function short(type: string): string {
  return typeInfo(typeUrl(type)).short;
}

function list(label: string, values: readonly string[]): string[] {
  return values.length === 0 ? [] : [`${label}[${values.join(' ')}]`];
}

function locators(
  of: readonly { name: string; parameters: readonly (readonly [string, string])[] }[],
): string[] {
  return of.map(({ name, parameters }) => `${name}(${parameters.map((pair) => pair.join('=')).join('&')})`);
}

function formatRequest(request: OutgoingRequest): string {
  const words = [short(request.typeUrl)];
  if (request.kind === 'sotw') {
    words.push(`[${[...request.names, ...locators(request.locators)].join(' ')}]`);
    if (request.version !== '') words.push(`version ${request.version}`);
  } else {
    words.push(...list('+', [...request.subscribe, ...locators(request.subscribeLocators)]));
    words.push(...list('-', [...request.unsubscribe, ...locators(request.unsubscribeLocators)]));
    const versions = [...request.initialVersions].map(([name, version]) => `${name}@${version}`);
    words.push(...list('initial ', versions));
  }
  if (request.nonce !== '') words.push(`${request.error === undefined ? 'ack' : 'nack'} ${request.nonce}`);
  if (request.error !== undefined) words.push(`"${request.error.message}"`);
  return words.join(' ');
}

function formatTransaction(transaction: Transaction): string {
  const words = [short(transaction.type)];
  if (transaction.holder.role === 'wildcard') words.push('(wildcard)');
  if (transaction.version !== undefined) words.push(`version ${transaction.version || '-'}`);
  for (const { name, constraints, any, version } of transaction.puts) {
    const own = version === '' || version === transaction.version ? '' : `@${version}`;
    words.push(`${name}${formatted(constraints)}:${contentOf(any)}${own}`);
  }
  for (const { name, constraints } of transaction.removals) words.push(`-${name}${formatted(constraints)}`);
  for (const { name, constraints, ttlMilliseconds } of transaction.heartbeats)
    words.push(`~${name}${formatted(constraints)}${ttlMilliseconds === undefined ? ':ended' : ''}`);
  for (const { name, code } of transaction.resourceErrors) words.push(`!${name}:${code}`);
  if (transaction.complete) words.push('complete');
  if (transaction.cannotDelete) words.push('partial');
  words.push(
    ...list(
      'settled ',
      transaction.resolved.map(({ selector, parameters }) =>
        parameters.entries.size === 0
          ? selector
          : `${selector}(${[...parameters.entries].map((pair) => pair.join('=')).join('&')})`,
      ),
    ),
  );
  return words.join(' ');
}

function formatted(constraints: Constraints): string {
  return constraints.key === UNCONSTRAINED.key ? '' : `{${formatConstraints(constraints.expression)}}`;
}
