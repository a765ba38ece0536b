/** Names come from peers, and may have kilobytes: so much of one is shown. */
const longest = 120;

export function shown(text: string, most = longest): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
