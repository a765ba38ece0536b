import type { Config } from './config.ts';
import { type Complaint, type ConfigProblem, locate, problemLine } from './source.ts';

/** What a good configuration says that is dangerous, and may be meant so. In the order of the file. */
export function warnings(config: Config): readonly ConfigProblem[] {
  return trustedNodes(config)
    .map((complaint) => locate(complaint, config.source.places))
    .toSorted((a, b) => a.line - b.line || a.column - b.column);
}

/** `problemLine`, marked as a warning. */
export function warningLine(file: string, warning: ConfigProblem): string {
  const path = warning.path === '' ? 'warning' : `warning: ${warning.path}`;
  return problemLine(file, { ...warning, path });
}

function trustedNodes({ parameters }: Config): readonly Complaint[] {
  return [...parameters.entries()]
    .filter(([, { trusted, from }]) => trusted && from.startsWith('node.'))
    .map(([index, { key, from }]) => ({
      path: ['parameters', index, 'from'],
      message: `the rule for ${JSON.stringify(key)} is trusted, but a client can write what it likes into ${from}: only peer.uri_san and peer.dns_san come from a verified certificate`,
    }));
}
