/**
 * What peers say may hold line ends, terminal escapes, and marks that turn the direction of text (Cf: U+202E and others).
 * None of them must reach the operator's terminal as it is: they could make a line look like another one.
 */
const invisible = /[\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** For a line of text. */
export function printable(text: string): string {
  return text.replaceAll(/\p{Cc}+/gu, ' ').replaceAll(invisible, (found) => `\\u{${hex(found)}}`);
}

/** The same JSON with such characters as escapes; JSON.stringify escapes those below U+0020. */
export function printableJson(json: string): string {
  return json.replaceAll(/[\p{Cf}\p{Zl}\p{Zp}\p{Cs}\u007f-\u009f]/gu, (found) =>
    Array.from({ length: found.length }, (_, unit) => escaped(found.charCodeAt(unit))).join(''),
  );
}

const hex = (character: string): string => (character.codePointAt(0) ?? 0).toString(16);
const escaped = (unit: number): string => `\\u${unit.toString(16).padStart(4, '0')}`;
