/** At most so many characters, the last of them then an ellipsis. */
export function shorten(text: string, longest: number): string {
  return text.length <= longest ? text : `${text.slice(0, longest - 1)}…`;
}

/** In quotation marks: what peers name may be of any length, a message should not be. */
export const quote = (text: string, longest: number): string => JSON.stringify(shorten(text, longest));

/** The text that is quoted as in JSON; undefined: it is not. */
export function unquoted(quoted: string): string | undefined {
  try {
    const value: unknown = JSON.parse(quoted);
    return typeof value === 'string' ? value : undefined;
  } catch {
    return undefined;
  }
}

/** "1 stream", "2 streams". */
export const counted = (count: number | bigint, what: string): string =>
  `${count} ${what}${Number(count) === 1 ? '' : 's'}`;

const hidden = '[redacted]@';

/** Without the users and passwords of the URLs in it. */
export const withoutUserinfo = (text: string): string => text.replaceAll(/(?<=:\/\/)[^\s/?#]*@/g, hidden);

/** The same of JSON: a URL ends with its string at the latest. */
export const withoutUserinfoJson = (json: string): string =>
  json.replaceAll(/(?<=:\/\/)(?:[^\s/?#"\\]|\\.)*@/g, hidden);

/** The same of a text that quotes what is no URL: its password may have any characters, as in "http://me:a/b@host". */
export const withoutPasswords = (text: string): string =>
  text.replaceAll(/[^\s"]+/g, (word) => {
    const [start, end] = [word.indexOf('://') + 3, word.lastIndexOf('@') + 1];
    return start < 3 || end < start ? word : word.slice(0, start) + hidden + word.slice(end);
  });

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

/** Bytes of UTF-8 that are kept of a client's error: Envoy cuts its own at 4096 characters. */
export const longestError = 4096;

/** From protobuf's text format. Which of three words it is, and how many spaces follow, differs by process. */
const marker = /goo\.gle\/debug\w*[ \t]*/g;
/** A message in that format. Fewer lines may be what the error is about. */
const dump = /^(?:[ \t]*(?:\}|\w+(?: \{|: (?:"(?:[^"\\\n]|\\.)*"|[-+.\w]+))|\[[\w./]+\] \{)[ \t]*\n){3,}/gm;
/** Longer texts are not from Envoy, and are not searched for dumps. */
const longestSearched = 2 * longestError;
const cutByEnvoy = '...(truncated)';
const leftOut = '…';

/**
 * What is kept of an error in the words of somebody else: all of it, if it has no more than 4096 bytes of UTF-8, but for
 * the secrets of the resource that it is about.
 */
export function keptError(message: string): string {
  const text = withoutSecrets(withoutMarker(message));
  return fits(text, longestError) ? text : errorText(text, longestError);
}

/**
 * The same for people, in at most so many bytes. Envoy puts a dump of the resource into the middle, and what was wrong at
 * the end: the dump goes.
 */
export const errorText = (message: string, longest: number): string =>
  headAndTail(withoutDump(withoutMarker(message)), longest);

/** The same for one line of a terminal or the page: there, the whole is behind `--json`, or one click away. */
export const errorLine = (message: string, longest: number = 1000): string =>
  printable(errorText(message, longest));

/** The texts that the API marks as sensitive (udpa.annotations.sensitive), as in text format or JSON: most are inline data. */
const secretText =
  /(\b(?:inline_?(?:string|bytes)|backend_?token|secret_?access_?key|session_?token)\\*"?\s*:\s*\\*")(?:[^"\\\n]|\\[^])*/gi;
/** The messages and maps that it marks so, where they have other texts. */
const secretBlock = /\b(?:credentials|context_?extensions|private_?key_?provider)\\*"?\s*:?\s*[{[]/gi;
const inBlock = /"(?:[^"\\\n]|\\[^])*"?|[{}[\]]/g;
/** Wherever it is; the end may have been cut off. */
const privateKey =
  /(?:-----BEGIN [A-Z0-9 ]*)?PRIVATE KEY-----[^"]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|(?=")|$)/g;
export const redacted = '[redacted]';

/** Envoy's dumps of resources have their keys and passwords in clear. */
function withoutSecrets(message: string): string {
  const text = message.length > longestSearched ? bothEnds(message) : message;
  const cut = text.endsWith(cutByEnvoy) ? cutByEnvoy : '';
  const whole = text.slice(0, text.length - cut.length);
  const rest = whole.replaceAll(privateKey, redacted).replaceAll(secretText, `$1${redacted}`);
  let shown = '';
  let from = 0;
  for (const { index, 0: start } of rest.matchAll(secretBlock)) {
    if (index < from) continue;
    const inside = index + start.length;
    shown += `${rest.slice(from, inside)} ${redacted} `;
    from = endOfBlock(rest, inside);
  }
  return shown + rest.slice(from) + cut;
}

function endOfBlock(text: string, inside: number): number {
  let depth = 1;
  inBlock.lastIndex = inside;
  for (let found = inBlock.exec(text); found !== null; found = inBlock.exec(text)) {
    const [token] = found;
    if (token === '{' || token === '[') depth++;
    else if (token === '}' || token === ']') depth--;
    if (depth === 0) return found.index;
  }
  return text.length;
}

/** As much as is searched, without the rest of a text that may be secret. */
function bothEnds(text: string): string {
  const tail = text.slice(-longestError);
  return `${text.slice(0, longestError)}\n${leftOut}\n${tail.slice(tail.search(/\n|(?<!\\)"/) + 1)}`;
}

const withoutMarker = (message: string): string =>
  message.length > longestSearched ? message : message.replaceAll(marker, '').trim();

function withoutDump(text: string): string {
  if (text.length > longestSearched) return text;
  const isCut = text.endsWith(cutByEnvoy);
  // The last line of a dump that was cut is a part of one.
  const lines = isCut ? text.slice(0, text.lastIndexOf('\n') + 1) : `${text}\n`;
  const words = lines.replaceAll(dump, leftOut).replaceAll(`\n${leftOut}`, leftOut).trimEnd();
  if (!words.includes(leftOut)) return text;
  return isCut ? `${words} (Envoy cut off the reason: it is in its log)` : words;
}

/** What a text is about is at its start, and what was wrong at its end: what is too long loses its middle. */
export function headAndTail(text: string, longest: number): string {
  if (fits(text, longest)) return text;
  const room = longest - utf8.encode(leftOut).length;
  const half = Math.ceil(room / 2);
  const { read } = utf8.encodeInto(text, new Uint8Array(half));
  const end = utf8.encode(text.slice(-longest));
  let from = end.length - (room - half);
  while (isInsideCharacter(end[from])) from++;
  return text.slice(0, read) + leftOut + new TextDecoder().decode(end.subarray(from));
}

const utf8 = new TextEncoder();
const isInsideCharacter = (byte = 0): boolean => (byte & 0xc0) === 0x80;
const fits = (text: string, longest: number): boolean =>
  text.length * 3 <= longest || (text.length <= longest && utf8.encode(text).length <= longest);

/** The accepted word that was probably meant, if one is near enough. */
export function nearest(word: string, accepted: readonly string[]): string | undefined {
  const plain = (text: string): string => text.toLowerCase().replaceAll(/[-_ ]/g, '');
  const sought = plain(word);
  const same = accepted.find((candidate) => plain(candidate) === sought);
  if (same !== undefined) return same;
  let best: { readonly candidate: string; readonly cost: number } | undefined;
  for (const candidate of accepted) {
    const tolerated = Math.max(1, Math.floor(Math.max(word.length, candidate.length) / 3));
    if (Math.abs(word.length - candidate.length) > tolerated) continue;
    const cost = distance(word.slice(0, 64), candidate);
    if (cost <= tolerated && (best === undefined || cost < best.cost)) best = { candidate, cost };
  }
  if (best !== undefined) return best.candidate;
  // `cert` for `certificate`, `private_key_file` for `private_key`.
  const begun = accepted.filter((candidate) => isBegun(plain(candidate), sought));
  return begun.length === 1 ? begun[0] : undefined;
}

/** One is how the other begins, by enough letters to mean it. */
const isBegun = (a: string, b: string): boolean =>
  Math.min(a.length, b.length) >= 3 && (a.startsWith(b) || b.startsWith(a));

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
export function distance(a: string, b: string): number {
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
