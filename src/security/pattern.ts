import { fail, ok, type Result } from '../model/result.ts';
import { canonicalPrefix, canonicalUri, isXdstp } from '../model/xdstp.ts';

/** Compares with a pattern whose `*`s each stand for any characters, none included. Linear in both lengths. */
export function compileGlob(pattern: string): (text: string) => boolean {
  const [first = '', ...rest] = pattern.split('*');
  const last = rest.pop();
  if (last === undefined) return (text) => text === pattern;
  return (text) => {
    if (text.length < first.length + last.length) return false;
    if (!text.startsWith(first) || !text.endsWith(last)) return false;
    const end = text.length - last.length;
    let from = first.length;
    // The earliest place of each part leaves most room for the next: no need to try others.
    for (const part of rest) {
      const at = text.indexOf(part, from);
      if (at < 0 || at + part.length > end) return false;
      from = at + part.length;
    }
    return true;
  };
}

/** A name as rules give it, in canonical spelling. */
export interface NamePattern {
  readonly text: string;
  /** Written with a trailing `*`. */
  readonly prefix: boolean;
}

/**
 * An exact name, or a prefix with a trailing `*`. An xdstp name means the same in any spelling; the error says why that
 * cannot be.
 */
export function parseNamePattern(pattern: string): Result<NamePattern> {
  if (pattern.endsWith('*')) {
    const start = canonicalPrefix(pattern.slice(0, -1));
    return start.ok ? ok({ text: start.value, prefix: true }) : start;
  }
  if (!isXdstp(pattern)) return ok({ text: pattern, prefix: false });
  if (pattern.includes('#')) {
    return fail(
      `xdstp name ${JSON.stringify(pattern)}: directives (#…) are no part of a name: leave them out`,
    );
  }
  const exact = canonicalUri(pattern);
  return exact.ok ? ok({ text: exact.value.name, prefix: false }) : exact;
}

/** The names of a rule. */
export class NamePatterns {
  readonly list: readonly NamePattern[];
  readonly #exact: ReadonlySet<string>;
  readonly #prefixes: readonly string[];

  constructor(patterns: readonly NamePattern[]) {
    this.list = patterns;
    this.#exact = new Set(this.list.filter(({ prefix }) => !prefix).map(({ text }) => text));
    this.#prefixes = this.list.filter(({ prefix }) => prefix).map(({ text }) => text);
  }

  /** Of a name in canonical spelling. */
  matches(name: string): boolean {
    return this.#exact.has(name) || this.#prefixes.some((prefix) => name.startsWith(prefix));
  }

  /** Whether whatever a pattern matches is matched here by one pattern. */
  covers({ text, prefix }: NamePattern): boolean {
    return prefix ? this.#prefixes.some((shorter) => text.startsWith(shorter)) : this.matches(text);
  }
}
