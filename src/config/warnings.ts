import { formatHostPort, isLoopback } from '../wire/address.ts';
import type { AdsUpstreamConfig, Config, UpstreamConfig } from './config.ts';
import { type ConfigProblem, locate, problemLine, type UnplacedProblem } from './source.ts';

/** What a relay says of a valid configuration when it starts: dangers, and rules without effect. In the order of the file. */
export function warnings(config: Config): readonly ConfigProblem[] {
  return [...dangers(config), ...withoutEffect(config)].toSorted(byPlace);
}

/** What is dangerous, though it may be intended. */
export function dangers(config: Config): readonly ConfigProblem[] {
  return located([...openListeners(config), ...trustedNodes(config), ...plainTokens(config)], config);
}

/** What cannot be intended, though a relay can run with it: `validate` refuses it. */
export function withoutEffect(config: Config): readonly ConfigProblem[] {
  return located(unverifiedIdentities(config), config);
}

const located = (complaints: readonly UnplacedProblem[], { source }: Config): readonly ConfigProblem[] =>
  complaints.map((complaint) => locate(complaint, source.places)).toSorted(byPlace);

const byPlace = (a: ConfigProblem, b: ConfigProblem): number => a.line - b.line || a.column - b.column;

/** `problemLine`, marked as a warning. */
export function warningLine(file: string, warning: ConfigProblem): string {
  const path = warning.path === '' ? 'warning' : `warning: ${warning.path}`;
  return problemLine(file, { ...warning, path });
}

/** Without TLS all clients look the same; rules then say what everybody may read. */
function openListeners({ xds, rest }: Config): readonly UnplacedProblem[] {
  if (xds.authorization.length > 0) return [];
  return [...openListener('xds', xds), ...(rest === undefined ? [] : openListener('rest', rest))];
}

function openListener(
  listener: 'xds' | 'rest',
  { address, tls }: Pick<Config['xds'], 'address' | 'tls'>,
): readonly UnplacedProblem[] {
  if (address.kind === 'unix' || isLoopback(address.host) || tls !== undefined) return [];
  const at = formatHostPort(address.host, address.port);
  const instead = listener === 'xds' ? '127.0.0.1 or a Unix socket' : '127.0.0.1';
  const message = `${at} is plaintext and has no authorization rules, so whoever can reach it may read everything, secrets too: set ${listener}.tls and xds.authorization, or listen on ${instead}`;
  return [{ path: [listener, 'address'], message }];
}

function trustedNodes({ parameters }: Config): readonly UnplacedProblem[] {
  return [...parameters.entries()]
    .filter(([, { trusted, from }]) => trusted && from.startsWith('node.'))
    .map(([index, { key, from }]) => ({
      path: ['parameters', index, 'from'],
      message: `the rule for ${JSON.stringify(key)} is trusted, but a client can write what it likes into ${from}: only peer.uri_san and peer.dns_san come from a verified certificate`,
    }));
}

/** Without a list of authorities no certificate is verified, so that no client has an identity. */
function unverifiedIdentities({ xds, rest, parameters }: Config): readonly UnplacedProblem[] {
  if (xds.tls?.ca !== undefined || rest?.tls?.ca !== undefined) return [];
  const message = 'matches no client: identities come from verified certificates, so set xds.tls.ca';
  const rules = [...xds.authorization.entries()].flatMap(([index, { principals }]) =>
    principals === undefined ? [] : { path: ['xds', 'authorization', 'rules', index, 'principals'], message },
  );
  const sources = [...parameters.entries()].flatMap(([index, { from }]) =>
    from.startsWith('peer.') ? { path: ['parameters', index, 'from'], message } : [],
  );
  return [...rules, ...sources];
}

/** Whoever is on the way could use the token. */
function plainTokens({ upstreams }: Config): readonly UnplacedProblem[] {
  const isPlain = (upstream: UpstreamConfig): boolean =>
    upstream.kind === 'ads' &&
    upstream.tokenFile !== undefined &&
    upstream.tls === undefined &&
    isRemote(upstream);
  return [...upstreams.entries()]
    .filter(([, upstream]) => isPlain(upstream))
    .map(([index]) => ({
      path: ['upstreams', index, 'ads', 'token_file'],
      message: 'the token goes over plaintext: set upstreams[].ads.tls',
    }));
}

const isRemote = ({ endpoints }: AdsUpstreamConfig): boolean =>
  endpoints.some((endpoint) => endpoint.kind === 'tcp' && !isLoopback(endpoint.host));
