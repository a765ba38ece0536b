import { proseOf } from './page.ts';

/** The longest sentence, in words. Code and links count as they are read: a link is its text, code is one word. */
const longest = 30;

/**
 * Idioms that docs/glossary.md and CONTRIBUTING.md replace, each with what to write. Words that are right in another
 * sense ("held", "known") are left to the reader.
 */
const replaced: readonly (readonly [RegExp, string])[] = [
  [/\btold apart\b|\btells? \w+ apart\b/i, 'distinguish, compare'],
  [/\bis owed\b|\bowes\b/i, 'must be resent'],
  [/\btakers?\b/i, 'subscriber'],
  [/\bcrews?\b/i, 'worker pool'],
  [/\bflavou?rs?\b/i, 'variant'],
  [/\bwishes\b/i, 'parameters, subscription'],
  [/\blapsed?\b/i, 'unknown again'],
  [/\bresting\b/i, 'suspended'],
  [/\bhopeless\b|\boutlook\b/i, 'outage'],
  [/\blanes?\b/i, 'stream'],
  [/\bcrowds?\b/i, 'shared session'],
  [/\ball the same\b/i, 'still, or a sentence of its own'],
  [/\bit goes without saying\b|\bneedless to say\b|\bof course\b/i, 'nothing'],
  [/\bsimply\b|\bobviously\b/i, 'nothing'],
];

/** What a reader would stumble over: idioms in the place of the field's words, and sentences that are too long. */
export const proseFaults = (page: string): readonly string[] => faultsIn(page, proseOf(page));

/** The same for a text. */
export function faultsIn(page: string, text: string): readonly string[] {
  const faults: string[] = [];
  for (const sentence of sentencesOf(text)) {
    const words = sentence.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
    if (words > longest) faults.push(`${page}: ${words} words: ${sentence}`);
    for (const [pattern, instead] of replaced) {
      const [found] = pattern.exec(sentence) ?? [];
      if (found !== undefined) faults.push(`${page}: "${found}" (write: ${instead}): ${sentence}`);
    }
  }
  return faults;
}

/** Paragraphs, items of lists and cells of tables, by their sentences. */
function sentencesOf(text: string): readonly string[] {
  return text
    .replaceAll(/<!--[^]*?-->/g, '')
    .replaceAll(/\*Not\*: .*$/gm, '') // of the glossary
    .replaceAll(/`[^`\n]*`/g, 'CODE')
    .replaceAll(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .split(/\n\s*\n|\n\s*(?:[-*]|\d+\.) |^#.*$|\n?\s*\|\s*|\n#+ /m)
    .flatMap((part) => part.replaceAll(/\s+/g, ' ').split(/(?<=[.!?:;][)"*_]*) /))
    .map((sentence) => sentence.trim());
}
