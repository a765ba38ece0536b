/** What `--log-format` takes. */
export const logFormats = ['json', 'text'] as const;
export type LogFormat = (typeof logFormats)[number];

export function isLogFormat(text: string): text is LogFormat {
  return logFormats.some((format) => format === text);
}
