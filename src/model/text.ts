/** At most so many characters, the last of them then an ellipsis. */
export function shorten(text: string, longest: number): string {
  return text.length <= longest ? text : `${text.slice(0, longest - 1)}…`;
}

/** In quotation marks: what peers name may be of any length, a message should not be. */
export const quote = (text: string, longest: number): string => JSON.stringify(shorten(text, longest));

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
