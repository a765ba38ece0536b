import { RE2JS } from 're2js';
import { attempt, errorMessage, fail, ok, type Result } from '../model/result.ts';
import { canonicalPrefix, canonicalUri, isXdstp } from '../model/xdstp.ts';
import type { SubjectAltNames } from '../wire/peer.ts';

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
      `xdstp name ${JSON.stringify(pattern)}: directives (#…) are not part of a name: leave them out`,
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

const dnsPrefix = 'dns:';

/**
 * Whether a peer is one of these: a URI SAN (`spiffe://example.com/*`), or with `dns:` a DNS SAN (`dns:*.example.com`,
 * whatever its case); `*` stands for any characters. A peer without a verified certificate is nobody.
 */
export function compilePrincipals(patterns: readonly string[]): (peer: SubjectAltNames) => boolean {
  const dns: ((name: string) => boolean)[] = [];
  const uris: ((uri: string) => boolean)[] = [];
  for (const pattern of patterns) {
    if (pattern.startsWith(dnsPrefix)) dns.push(compileGlob(pattern.slice(dnsPrefix.length).toLowerCase()));
    else uris.push(compileGlob(pattern));
  }
  return (peer) =>
    peer.uriSans.some((uri) => uris.some((matches) => matches(uri))) ||
    peer.dnsSans.some((name) => dns.some((matches) => matches(name.toLowerCase())));
}

/** In bytes of UTF-8. */
const longestPattern = 256;
/** Characters of a pattern whose repetitions are written out: about half the instructions that RE2 makes of it. */
const mostWritten = 500;
/** A class such as \pL is a table of hundreds of ranges. */
const unicodeClass = 32;
/** In UTF-16 units. A longer text does not match: matching takes time by its length and by the pattern's. */
const longestText = 512;

/** A range such as [b-\x{1E942}] is folded character by character: milliseconds for each such class. */
const ignoresCase = /\(\?[A-Za-z-]*i/;
const beyondAscii = /[^ -~]|\\[xpP]/g;
/** In characters that take as long. */
const foldedRange = 2000;

/**
 * A peer's own RE2 pattern, which must match the whole text. RE2 matches in linear time, but compiles `x{1000}` to a
 * thousand instructions, each of them with memory, so the size of a pattern is estimated before it is compiled.
 */
export function compileBounded(pattern: string): Result<(text: string) => boolean> {
  const bytes = Buffer.byteLength(pattern);
  if (bytes > longestPattern)
    return fail(`a pattern of ${bytes} bytes: at most ${longestPattern} are accepted`);
  const written = writtenOut(pattern);
  if (written > mostWritten) {
    return fail(
      `a pattern that comes to about ${written} characters with its repetitions written out: at most ${mostWritten} are accepted`,
    );
  }
  if (ignoresCase.test(pattern) && pattern.search(beyondAscii) >= 0) {
    return fail('(?i) is accepted with ASCII only, without \\x, \\p and \\P');
  }
  const compiled = attempt(() => RE2JS.compile(pattern), errorMessage);
  if (!compiled.ok) return compiled;
  return ok((text) => text.length <= longestText && compiled.value.matches(text));
}

/** How long RE2 takes to compile a pattern, in characters: each costs some microseconds and 200 bytes. */
export const compileCost = (pattern: string): number =>
  writtenOut(pattern) +
  (ignoresCase.test(pattern) ? (pattern.match(beyondAscii)?.length ?? 0) * foldedRange : 0);

/**
 * At least as many characters as there are with `x{3}` written as `xxx`. A repetition after a parenthesis is taken to
 * repeat everything before it, and so is any one where something is quoted: RE2 repeats what is before an empty \Q\E.
 */
export function writtenOut(pattern: string): number {
  const quotes = pattern.includes('\\E');
  let size = 0;
  let before = '';
  for (const [part, least, most] of pattern.matchAll(/\{(\d+)(?:,(\d*))?\}|\\[pP]|[^]/g)) {
    if (least === undefined) {
      size += part.length > 1 ? unicodeClass : 1;
      before = part;
    } else {
      const times = Math.max(1, Number(least), Number(most ?? 0));
      size = quotes || before === ')' ? size * times : size + times;
    }
  }
  return size;
}
