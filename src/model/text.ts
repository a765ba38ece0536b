/** At most so many characters, the last of them then an ellipsis. */
export function shorten(text: string, longest: number): string {
  return text.length <= longest ? text : `${text.slice(0, longest - 1)}…`;
}

/** In quotation marks: what peers name may be of any length, a message should not be. */
export const quote = (text: string, longest: number): string => JSON.stringify(shorten(text, longest));

/** "1 stream", "2 streams". */
export const counted = (count: number | bigint, what: string): string =>
  `${count} ${what}${Number(count) === 1 ? '' : 's'}`;
