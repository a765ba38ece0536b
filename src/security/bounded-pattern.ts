import { RE2JS } from 're2js';
import { errorMessage, fail, ok, type Result } from '../model/result.ts';

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
const beyondAscii = /[^ -~]|\\[xpP]/;

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
  if (ignoresCase.test(pattern) && beyondAscii.test(pattern)) {
    return fail('(?i) is accepted with ASCII only, without \\x, \\p and \\P');
  }
  try {
    const compiled = RE2JS.compile(pattern);
    return ok((text) => text.length <= longestText && compiled.matches(text));
  } catch (error) {
    return fail(errorMessage(error));
  }
}

/**
 * At least as many characters as there are with `x{3}` written as `xxx`. A repetition after a parenthesis is taken to
 * repeat everything before it.
 */
export function writtenOut(pattern: string): number {
  let size = 0;
  let before = '';
  for (const [part, least, most] of pattern.matchAll(/\{(\d+)(?:,(\d*))?\}|\\[pP]|[^]/g)) {
    if (least === undefined) {
      size += part.length > 1 ? unicodeClass : 1;
      before = part;
    } else {
      const times = Math.max(1, Number(least), Number(most ?? 0));
      size = before === ')' ? size * times : size + times;
    }
  }
  return size;
}
