const texts: ReadonlyMap<string, readonly [text: string, style: string]> = new Map([
  ['SYNCED', ['acknowledged', 'ok']],
  ['STALE', ['not acknowledged', 'warn']],
  ['ERROR', ['rejected', 'bad']],
  ['MISSING', ['missing', 'warn']],
  ['NOT_SENT', ['not sent', 'dim']],
]);

/** The state of what a client was sent, in words; the colour only repeats it. */
export function StateText({ state }: { readonly state: string }) {
  const [text, style] = texts.get(state) ?? [state, 'dim'];
  return <span class={style}>{text}</span>;
}
