import { printable } from './printable.ts';

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

/** What is kept of an error in the words of somebody else: all of it, if it has no more than 4096 bytes of UTF-8. */
export function keptError(message: string): string {
  const text = withoutMarker(message);
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
