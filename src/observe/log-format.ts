/** What `--log-format` takes. */
export const logFormats = ['json', 'text'] as const;
export type LogFormat = (typeof logFormats)[number];
