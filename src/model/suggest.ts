/** The accepted word that was probably meant, if one is near enough. */
export function nearest(word: string, accepted: readonly string[]): string | undefined {
  const plain = (text: string): string => text.toLowerCase().replaceAll(/[-_ ]/g, '');
  const same = accepted.find((candidate) => plain(candidate) === plain(word));
  if (same !== undefined) return same;
  let best: { readonly candidate: string; readonly cost: number } | undefined;
  for (const candidate of accepted) {
    const cost = distance(word.slice(0, 64), candidate);
    const tolerated = Math.max(1, Math.floor(Math.max(word.length, candidate.length) / 3));
    if (cost <= tolerated && (best === undefined || cost < best.cost)) best = { candidate, cost };
  }
  return best?.candidate;
}

/** `a`, `a or b`, `a, b or c`. */
export function anyOf(words: readonly string[]): string {
  const last = words.at(-1) ?? 'nothing';
  return words.length < 2 ? last : `${words.slice(0, -1).join(', ')} or ${last}`;
}

/** What every refusal of a value says: `expected a whole number, got "abc"`. */
export const expectedText = (expected: string, got: string | number): string =>
  `expected ${expected}, got ${JSON.stringify(got)}`;

/** `unknown key "adress": did you mean "address"?`, or the list of what is accepted. */
export function unknownWord(kind: string, word: string, accepted: readonly string[]): string {
  const meant = nearest(word, accepted);
  const hint = meant === undefined ? `expected ${anyOf(accepted)}` : `did you mean ${JSON.stringify(meant)}?`;
  return `unknown ${kind} ${JSON.stringify(word)}: ${hint}`;
}

/** Edits between two words; a swap of neighbours is one edit (optimal string alignment). */
function distance(a: string, b: string): number {
  let older: readonly number[] = [];
  let previous: readonly number[] = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    for (let column = 1; column <= b.length; column++) {
      const differs = a[row - 1] === b[column - 1] ? 0 : 1;
      let cost = Math.min(
        (previous[column] ?? 0) + 1,
        (current[column - 1] ?? 0) + 1,
        (previous[column - 1] ?? 0) + differs,
      );
      if (row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1]) {
        cost = Math.min(cost, (older[column - 2] ?? 0) + 1);
      }
      current.push(cost);
    }
    older = previous;
    previous = current;
  }
  return previous[b.length] ?? 0;
}
