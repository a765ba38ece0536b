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

/** Names as rules give them: exact ones, and prefixes written with a trailing `*`. */
export class NamePatterns {
  readonly #exact: ReadonlySet<string>;
  readonly #prefixes: readonly string[];

  constructor(patterns: readonly string[]) {
    this.#exact = new Set(patterns.filter((pattern) => !pattern.endsWith('*')));
    this.#prefixes = patterns
      .filter((pattern) => pattern.endsWith('*'))
      .map((pattern) => pattern.slice(0, -1));
  }

  matches(name: string): boolean {
    return this.#exact.has(name) || this.#prefixes.some((prefix) => name.startsWith(prefix));
  }

  /** Whether whatever `pattern` matches is matched here by one pattern. */
  covers(pattern: string): boolean {
    return pattern.endsWith('*')
      ? this.#prefixes.some((prefix) => pattern.slice(0, -1).startsWith(prefix))
      : this.matches(pattern);
  }
}
