import type { Result } from '../model/result.ts';
import { counted } from '../model/text.ts';
import { type Address, formatHostPort, isLoopback, parseAddress } from '../wire/address.ts';
import type { AdsUpstreamConfig, Config, UpstreamConfig } from './config.ts';
import { parseDuration } from './duration.ts';
import { defaultAddress, everywhere, servesEverything } from './schema.ts';
import { read, readList, readText } from './schema-parts.ts';
import { defaultBake, defaultMaxWait } from './schema-rollout.ts';
import { type ConfigProblem, locate, pathText, type UnplacedProblem } from './source.ts';

/** What a relay says of a valid configuration when it starts: dangers, and rules without effect. In the order of the file. */
export function warnings(config: Config): readonly ConfigProblem[] {
  return [...dangers(config), ...located(withoutEffect(config.source.value), config)].toSorted(byPlace);
}

/** What is dangerous, though it may be intended. */
export const dangers = foundBy(openListeners, openAdmin, trustedNodes, plainTokens, literalStars);

/** What contradicts itself. Only `validate` warns of it: a relay with it works. */
export const contradictions = foundBy(checksThatLeaveIt, bakesTooShortForTraffic, siblingsThatRefuse);

/**
 * What cannot be intended, though a relay can run with it: `validate` refuses it. It reads the raw values, so it works even
 * if others are wrong.
 */
export function withoutEffect(file: unknown): readonly UnplacedProblem[] {
  return [
    ...unverifiedIdentities(file),
    ...unusedUpstreams(file),
    ...upstreamsThatAreThisRelay(file),
    ...bakesThatTimeOut(file),
  ];
}

/** What a control plane sees where a rule does not say it. Only `validate` prints it: most of these are intended. */
export const hints = foundBy(parametersShownElsewhere);

/** Rules for which clients of a running relay must reconnect, each with how many. Only `validate --against` warns of them. */
export function unreadFields(
  config: Config,
  unread: readonly { readonly key: string; readonly from: string; readonly streams: number }[],
): readonly ConfigProblem[] {
  const complaints = [...config.parameters.entries()].flatMap(([index, { key, from }]) =>
    unread
      .filter((rule) => rule.key === key && rule.from === from)
      .map(({ streams }) => ({
        path: ['parameters', index, 'from'],
        message: `the rule for ${JSON.stringify(key)} reads ${from}, which the relay has not kept of ${counted(streams, 'stream')}, because its rules do not read it: what these lose is unknown until they reconnect`,
      })),
  );
  return located(complaints, config);
}

function foundBy(...finders: readonly ((config: Config) => readonly UnplacedProblem[])[]) {
  return (config: Config): readonly ConfigProblem[] =>
    located(
      finders.flatMap((find) => find(config)),
      config,
    );
}

const located = (complaints: readonly UnplacedProblem[], { source }: Config): readonly ConfigProblem[] =>
  complaints.map((complaint) => locate(complaint, source.places)).toSorted(byPlace);

/** In the order of the file. */
const byPlace = (a: ConfigProblem, b: ConfigProblem): number => a.line - b.line || a.column - b.column;

/** Without TLS all clients look the same; rules then say what everybody may read. */
function openListeners({ xds, rest }: Config): readonly UnplacedProblem[] {
  if (xds.authorization.length > 0) return [];
  return [...openListener('xds', xds), ...(rest === undefined ? [] : openListener('rest', rest))];
}

function openListener(
  listener: 'xds' | 'rest',
  { address, tls }: Pick<Config['xds'], 'address' | 'tls'>,
): readonly UnplacedProblem[] {
  const at = openAddress(address, tls);
  if (at === undefined) return [];
  const instead = listener === 'xds' ? '127.0.0.1 or a Unix socket' : '127.0.0.1';
  const message = `${at} is plaintext and has no authorization rules, so anybody who can reach it can read everything, secrets too: set ${listener}.tls and xds.authorization, or listen on ${instead}`;
  return [{ path: [listener, 'address'], message }];
}

function openAdmin({ admin }: Config): readonly UnplacedProblem[] {
  const at = openAddress(admin.address, admin.tls);
  if (at === undefined || admin.readOnly) return [];
  const message = `${at} is plaintext, so anybody who can reach it can freeze, discard and roll back: set admin.tls with ca, or admin.read_only, or listen on 127.0.0.1`;
  return [{ path: ['admin', 'address'], message }];
}

/** Undefined: other machines cannot reach it, or it has TLS. */
function openAddress(address: Address, tls: unknown): string | undefined {
  if (address.kind === 'unix' || isLoopback(address.host) || tls !== undefined) return undefined;
  return formatHostPort(address.host, address.port);
}

function trustedNodes({ parameters }: Config): readonly UnplacedProblem[] {
  return [...parameters.entries()]
    .filter(([, { trusted, from }]) => trusted && from.startsWith('node.'))
    .map(([index, { key, from }]) => ({
      path: ['parameters', index, 'from'],
      message: `the rule for ${JSON.stringify(key)} is trusted, but a client can write anything into ${from}: only peer.uri_san and peer.dns_san come from a verified certificate`,
    }));
}

/** A rule that is meant to deny denies nothing. Elsewhere, as in `principals`, a star may stand anywhere. */
function literalStars({ source: { value } }: Config): readonly UnplacedProblem[] {
  const rules = readList(read(read(value, 'xds'), 'authorization'), 'rules');
  const found = (entries: readonly unknown[], ...path: UnplacedProblem['path']): UnplacedProblem[] =>
    entries.flatMap((entry, index) =>
      readList(entry, 'names').flatMap((name, at) => {
        // In names of xdstp it is part of a glob.
        if (typeof name !== 'string' || name.startsWith('xdstp:') || !name.slice(0, -1).includes('*'))
          return [];
        const message = `${JSON.stringify(name)} has a * that is not at its end: it stands for itself, and only one at the end stands for any characters`;
        return [{ path: [...path, index, 'names', at], message }];
      }),
    );
  return [
    ...found(rules, 'xds', 'authorization', 'rules'),
    ...found(readList(value, 'upstreams'), 'upstreams'),
  ];
}

/** Without a list of authorities no certificate is verified, so that no client has an identity. */
function unverifiedIdentities(file: unknown): readonly UnplacedProblem[] {
  const [xds, rest] = [read(file, 'xds'), read(file, 'rest')];
  if ([xds, rest].some((listener) => read(read(listener, 'tls'), 'ca') !== undefined)) return [];
  const message = 'matches no client: identities come from verified certificates, so set xds.tls.ca';
  const rules = readList(read(xds, 'authorization'), 'rules').flatMap((rule, index) =>
    readList(rule, 'principals').length === 0
      ? []
      : { path: ['xds', 'authorization', 'rules', index, 'principals'], message },
  );
  const sources = readList(file, 'parameters').flatMap((rule, index) =>
    /^peer\.(uri|dns)_san$/.test(readText(rule, 'from') ?? '')
      ? { path: ['parameters', index, 'from'], message }
      : [],
  );
  const others = [
    ['limits', 'relay_peers'],
    ['xds', 'client_status', 'principals'],
  ].flatMap((path) => {
    const within = path.slice(0, -1).reduce((value: unknown, key) => read(value, key), file);
    return readList(within, path.at(-1) ?? '').length === 0 ? [] : { path, message };
  });
  return [...rules, ...sources, ...others];
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
      message: 'the token is sent in plaintext: set upstreams[].ads.tls',
    }));
}

const isRemote = ({ endpoints }: AdsUpstreamConfig): boolean =>
  endpoints.some((endpoint) => endpoint.kind === 'tcp' && !isLoopback(endpoint.host));

function checksThatLeaveIt({ rollout }: Config): readonly UnplacedProblem[] {
  if (rollout === undefined || rollout.onFailure === 'DISCARD') return [];
  const stays = (key: 'checks' | 'traffic', what: string): UnplacedProblem => ({
    path: ['rollout', key],
    message: `a change that ${what} finds bad stays with the clients that have it until somebody comes: set rollout.on_failure: DISCARD`,
  });
  return [
    ...(rollout.checks.length === 0 ? [] : [stays('checks', 'a check')]),
    ...(rollout.traffic === undefined ? [] : [stays('traffic', 'their traffic')]),
  ];
}

/** A sibling chooses parameters freely. Where clients are verified, or do not choose theirs, only relays may. */
export const admitsOnlyRelays = ({ xds, parameters }: Pick<Config, 'xds' | 'parameters'>): boolean =>
  xds.tls?.ca !== undefined || parameters.some(({ trusted, values }) => trusted || values.length > 0);

function siblingsThatRefuse(config: Config): readonly UnplacedProblem[] {
  if (config.limits.relayPeers.length > 0 || !admitsOnlyRelays(config)) return [];
  const message =
    'no sibling answers: where clients are verified, or parameters are trusted or have values, limits.relay_peers must name the replicas by their certificates (siblings.tls)';
  return [...config.upstreams.entries()].flatMap(([index, upstream]) =>
    upstream.kind === 'ads' && upstream.siblings?.address.kind === 'tcp'
      ? { path: ['upstreams', index, 'siblings'], message }
      : [],
  );
}

/** The first report of a client does not count, and it is a whole interval until that comes. */
const reportsNeeded = 3;

function bakesTooShortForTraffic({ rollout }: Config): readonly UnplacedProblem[] {
  if (rollout?.traffic === undefined) return [];
  const { intervalMs } = rollout.traffic;
  const shortest = Math.min(...rollout.waves.map(({ bakeMs }) => bakeMs ?? rollout.bakeMs));
  if (shortest >= intervalMs * reportsNeeded) return [];
  const message = `clients report every ${intervalMs / 1000} s, and count from the second report: in a bake of ${shortest / 1000} s their traffic may say nothing. Bake for ${(intervalMs * reportsNeeded) / 1000}s at least, or ask more often`;
  return [{ path: ['rollout', 'traffic', 'interval'], message }];
}

/** A wave whose bake is longer is over only by `on_timeout`; with MANUAL there is no timeout. */
function bakesThatTimeOut(file: unknown): readonly UnplacedProblem[] {
  const rollout = read(file, 'rollout');
  const maxWait = meant(read(rollout, 'max_wait') ?? defaultMaxWait, parseDuration) ?? 0;
  if (rollout === undefined || maxWait === 0 || read(rollout, 'mode') === 'MANUAL') return [];
  const bakes = readList(rollout, 'waves').map(
    (wave, index) => [read(wave, 'bake'), ['waves', index]] as const,
  );
  const own = bakes.filter(([bake]) => bake !== undefined);
  const isShared = own.length === 0 || own.length < bakes.length;
  const shared = isShared ? [[read(rollout, 'bake') ?? defaultBake, []] as const] : [];
  return [...shared, ...own].flatMap(([text, path]) => {
    const bake = meant(text, parseDuration) ?? 0;
    if (bake <= maxWait) return [];
    const message = `a bake of ${bake / 1000}s is longer than max_wait (${maxWait / 1000}s): every change would time out`;
    return { path: ['rollout', ...path, 'bake'], message };
  });
}

/** Undefined: the schema refuses it. */
function meant<T>(value: unknown, parse: (text: string) => Result<T>): T | undefined {
  const parsed = typeof value === 'string' ? parse(value) : undefined;
  return parsed?.ok === true ? parsed.value : undefined;
}

/** Those after one that serves everything. */
function unusedUpstreams(file: unknown): readonly UnplacedProblem[] {
  const entries = readList(file, 'upstreams');
  const first = entries.findIndex(servesEverything);
  const message = `is never used: upstreams[${first}] comes first and serves everything; give that one claims (authorities, types, names), or put it last`;
  return [...entries.keys()]
    .filter((index) => first !== -1 && index > first)
    .map((index) => ({ path: ['upstreams', index], message }));
}

/** The relay would subscribe to itself. It notices when it connects, and is never ready. */
function upstreamsThatAreThisRelay(file: unknown): readonly UnplacedProblem[] {
  const own = meant(read(read(file, 'xds'), 'address') ?? defaultAddress, parseAddress);
  return readList(file, 'upstreams').flatMap((upstream, index) =>
    readList(read(upstream, 'ads'), 'endpoints').flatMap((text, at) => {
      const endpoint = meant(text, parseAddress);
      if (own === undefined || endpoint === undefined || !isReachedAt(own, endpoint)) return [];
      const message = 'this is xds.address, where this relay itself listens: name a control plane';
      return { path: ['upstreams', index, 'ads', 'endpoints', at], message };
    }),
  );
}

/** The addresses by which a listener on every interface is certainly reached are those of this machine alone. */
function isReachedAt(listener: Address, endpoint: Address): boolean {
  if (listener.kind === 'unix' || endpoint.kind === 'unix')
    return listener.kind === 'unix' && endpoint.kind === 'unix' && listener.path === endpoint.path;
  if (listener.port === 0 || listener.port !== endpoint.port) return false;
  if (listener.host === endpoint.host) return true;
  const isLocal = isLoopback(endpoint.host) || everywhere.has(endpoint.host);
  return isLocal && (everywhere.has(listener.host) || isLoopback(listener.host));
}

function parametersShownElsewhere({
  parameters,
  upstreams,
  source: { places },
}: Config): readonly UnplacedProblem[] {
  if (!upstreams.some((upstream) => upstream.kind === 'ads' && upstream.variants === 'PER_PARAMETERS'))
    return [];
  return [...parameters.entries()].flatMap(([index, { from, to }]) => {
    const path = ['parameters', index];
    if (!from.startsWith('node.') || from === to || places.has(pathText([...path, 'to']))) return [];
    const message = `a control plane sees this value in ${to}, and in ${from} that of the relay: set "to" if it decides by ${from}, or to ${JSON.stringify(to)} if this is meant`;
    return { path: [...path, 'from'], message };
  });
}
