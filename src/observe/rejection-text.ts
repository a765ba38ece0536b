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
