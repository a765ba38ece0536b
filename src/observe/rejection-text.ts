import { shortenMiddle } from '../model/text.ts';
import { longestText } from './format.ts';

interface Rejected {
  readonly name: string;
  readonly names: readonly string[];
  readonly changed: number;
  readonly removal: boolean;
}

/** What was rejected, in words: `web`, `removal of web`, `one of a, b and 3 more`. */
export function rejectedText({ name, names, changed, removal }: Rejected): string {
  const rest = changed - names.length;
  const several = rest > 0 ? `${names.join(', ')} and ${rest} more` : names.join(', ');
  const what = name !== '' ? name : changed > 1 ? `one of ${several}` : several;
  if (what === '') return 'the whole response';
  return removal ? `removal of ${what}` : what;
}

/** A client's error as it is kept: where it is wrong stands at the beginning, and why at the end. */
export const keptError = (message: string): string => shortenMiddle(message.trim(), longestText);

/** The resource that Envoy quotes between the two, as protobuf prints it. */
const dump = /goo\.gle\/debug\w*\s[^]*?\n(?=: )/g;

/** On a line among others. */
export const longestError = 300;

/** The same on one line, without what Envoy quotes of the resource. */
export const errorText = (message: string, longest: number): string =>
  shortenMiddle(message.replaceAll(dump, '{…}').replaceAll(/\s+/g, ' ').trim(), longest);
