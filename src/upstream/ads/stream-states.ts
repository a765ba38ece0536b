import { countIn } from '../../model/maps.ts';
import type { Awaited } from './stream-effects.ts';

/** An ADS stream of a session, again and again. */
export interface ConnectionStream {
  /** Encoded: what it shows to the control plane. */
  readonly node: Uint8Array;
  /** What it has asked and has no answer yet. */
  readonly awaits: Awaited;
}

/**
 * - `asked`: it is open and may answer
 * - `ended`: it had responses, and is opened again
 * - `refused`: it ended before any response
 * - `refused alone`, or `silent alone` about a wildcard: while others had responses. That says nothing about the endpoint.
 */
type StreamState = 'asked' | 'answered' | 'ended' | 'refused' | 'refused alone' | 'silent alone';

/** What has become of the streams of one connection: by that its endpoint is judged (protocol §8.4). */
export class StreamStates {
  readonly #states = new Map<ConnectionStream, StreamState>();
  readonly #counts = new Map<StreamState, number>();

  /** Some stream that is open has had a response. */
  get isAnswered(): boolean {
    return this.#count('answered') > 0;
  }

  get refused(): number {
    return this.#count('refused') + this.#count('refused alone');
  }

  /** Some other one. */
  isAnsweredBeside(stream: ConnectionStream): boolean {
    return this.#count('answered') > (this.#states.get(stream) === 'answered' ? 1 : 0);
  }

  /** No stream has a response, and what had one is open again. */
  get isSilent(): boolean {
    return this.#count('answered') + this.#count('ended') === 0;
  }

  /** The endpoint refuses every stream. */
  get allRefused(): boolean {
    const mayAnswer = this.#count('asked') + this.#count('answered') + this.#count('ended');
    return mayAnswer === 0 && this.#count('refused') > 0;
  }

  opening(stream: ConnectionStream): void {
    const before = this.#states.get(stream);
    if (before === undefined || before === 'ended') this.#set(stream, 'asked');
  }

  answered(stream: ConnectionStream): void {
    if (this.#states.get(stream) === 'answered') return;
    if (!this.isAnswered) {
      for (const [one, state] of this.#states) if (state === 'refused') this.#set(one, 'refused alone');
    }
    this.#set(stream, 'answered');
  }

  ended(stream: ConnectionStream): void {
    this.#set(stream, 'ended');
  }

  refuse(stream: ConnectionStream): void {
    const isAlone = this.isAnswered || this.#states.get(stream)?.endsWith('alone') === true;
    this.#set(stream, isAlone ? 'refused alone' : 'refused');
  }

  /** Its wildcard has no answer. Whether that is the endpoint's silence. */
  isSilenceOf(stream: ConnectionStream): boolean {
    if (!this.#isUnanswered(stream)) return false;
    if (this.isAnswered) this.#set(stream, 'silent alone');
    return this.isSilent;
  }

  /** By which the endpoint is judged. */
  unanswered(): readonly ConnectionStream[] {
    return [...this.#states.keys()].filter((stream) => this.#isUnanswered(stream));
  }

  delete(stream: ConnectionStream): void {
    const state = this.#states.get(stream);
    if (state === undefined) return;
    this.#states.delete(stream);
    countIn(this.#counts, state, -1);
  }

  clear(): void {
    this.#states.clear();
    this.#counts.clear();
  }

  #isUnanswered(stream: ConnectionStream): boolean {
    const state = this.#states.get(stream);
    return state === 'asked' || state === 'refused';
  }

  #count(state: StreamState): number {
    return this.#counts.get(state) ?? 0;
  }

  #set(stream: ConnectionStream, state: StreamState): void {
    const before = this.#states.get(stream);
    if (before !== undefined) countIn(this.#counts, before, -1);
    this.#states.set(stream, state);
    countIn(this.#counts, state, 1);
  }
}
