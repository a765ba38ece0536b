import { type Clock, systemClock } from '../model/clock.ts';

export type Level = 'debug' | 'info' | 'warn' | 'error';

/** The levels that `--log-level` takes. */
export const levels = ['debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof levels)[number];

/** Another level for a time, from now: for lines about one node, or (undefined) for all lines. */
export type LevelOverride = ReturnType<LogLevels['overrides']>[number];

/** Somebody chases a problem: few nodes at a time. */
export const maxOverrides = 100;

/** Which lines are written, now. An override ends by itself; the one for a node wins over the one for all. */
export class LogLevels {
  /** The level of the start. */
  readonly initial: LogLevel;
  readonly #clock: Clock;
  /** By node. `until`: by `Clock.monotonic()`. */
  readonly #overrides = new Map<string | undefined, { readonly level: LogLevel; readonly until: number }>();
  readonly #listeners = new Set<() => void>();

  constructor(initial: LogLevel = 'info', clock: Clock = systemClock) {
    this.initial = initial;
    this.#clock = clock;
  }

  /**
   * Whether a line of this level is written. `node`: whom it is about, if it is about a node; null: nobody knows which one,
   * so it may be any.
   */
  enables(level: Level, node?: unknown): boolean {
    return levels.indexOf(level) >= levels.indexOf(this.#of(node));
  }

  /** Those in force. */
  overrides() {
    const now = this.#clock.monotonic();
    return [...this.#overrides]
      .map(([node, { level, until }]) => ({ node, level, milliseconds: until - now }))
      .filter(({ milliseconds }) => milliseconds > 0);
  }

  /** Replaces the override of the same node. False: there are `maxOverrides` already. */
  override(added: LevelOverride): boolean {
    for (const node of this.#overrides.keys())
      if (this.#inForce(node) === undefined) this.#overrides.delete(node);
    if (!this.#overrides.has(added.node) && this.#overrides.size >= maxOverrides) return false;
    this.#begin(added);
    this.#changed();
    return true;
  }

  end(node: string | undefined): void {
    this.#overrides.delete(node);
    this.#changed();
  }

  /** Those of another process of the relay. */
  take(overrides: readonly LevelOverride[]): void {
    this.#overrides.clear();
    for (const override of overrides) this.#begin(override);
    this.#changed();
  }

  /** Calls back after each change. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  #begin({ node, level, milliseconds }: LevelOverride): void {
    this.#overrides.set(node, { level, until: this.#clock.monotonic() + milliseconds });
  }

  #of(node: unknown): LogLevel {
    if (this.#overrides.size === 0) return this.initial;
    const ofAll = this.#inForce(undefined) ?? this.initial;
    if (node !== null) return (typeof node === 'string' ? this.#inForce(node) : undefined) ?? ofAll;
    const those = new Set([ofAll, ...this.overrides().map((one) => one.level)]);
    return levels.find((level) => those.has(level)) ?? ofAll;
  }

  #inForce(node: string | undefined): LogLevel | undefined {
    const override = this.#overrides.get(node);
    return override === undefined || override.until <= this.#clock.monotonic() ? undefined : override.level;
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** What `--log-format` takes. */
export const logFormats = ['json', 'text'] as const;
export type LogFormat = (typeof logFormats)[number];
