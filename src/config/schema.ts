import { RE2JS } from 're2js';
import * as z from 'zod';
import { longestPath, mostNodeText, nodePath, parseShown, templateKeys } from '../model/node-path.ts';
import { attempt, errorMessage, fail, ok, type Result } from '../model/result.ts';
import { anyOf, expectedText } from '../model/text.ts';
import { compileCost } from '../security/pattern.ts';
import { formatHostPort } from '../wire/address.ts';
import { VIA_HEADER } from '../wire/via.ts';
import {
  authority,
  certificateWithKey,
  checkHost,
  clientTls,
  count,
  duration,
  endpoint,
  evenIfWrong,
  exactlyOne,
  inCode,
  listenAddress,
  listenAnywhere,
  name,
  parsed,
  positiveDuration,
  principal,
  read,
  readList,
  readText,
  resourceNames,
  resourceType,
  tlsOf,
  uniqueNames,
} from './schema-parts.ts';
import { checkRollout, history, rollout } from './schema-rollout.ts';

// biome-ignore format: a table, one key a line
const serverTls = z
  .strictObject({
    certificate: name().optional().describe('PEM file of the certificate chain'),
    private_key: name().optional().describe('PEM file of its key'),
    ca: name().optional().describe('PEM file of the authorities that client certificates are verified against'),
    require_client_certificate: z.boolean().default(false).describe('Refuse clients without a certificate (mutual TLS)'),
  });

// biome-ignore format: a table, one key a line
const resumableTls = serverTls.extend({
    session_tickets: z.boolean().default(true).describe('Whether clients can resume TLS sessions, also in another worker, after a new certificate and, with cache.persistence, after a restart'),
    session_ticket_secret_file: name().optional().describe('File with a secret of 32 bytes or more, the same for all replicas: a client can then resume its TLS session at each of them. Left out: the keys of tickets are random'),
});

function checkServerTls(tls: unknown, context: z.core.$RefinementCtx): void {
  const set = (key: string): boolean => read(tls, key) !== undefined;
  const required = read(tls, 'require_client_certificate') === true;
  const secret = 'session_ticket_secret_file';
  const used = set('certificate') || set('private_key') || set('ca') || required || set(secret);
  const missing = ['certificate', 'private_key'].filter((key) => !set(key));
  if (used && missing.length > 0) {
    context.addIssue(
      `certificate and private_key belong together: ${missing.join(' and ')} ${missing.length === 1 ? 'is' : 'are'} missing`,
    );
  }
  if (required && !set('ca')) {
    const message = 'needs ca: the authorities that client certificates are verified against';
    context.addIssue({ code: 'custom', path: ['require_client_certificate'], message });
  }
  if (set(secret) && read(tls, 'session_tickets') === false) {
    const message = 'needs session_tickets: true';
    context.addIssue({ code: 'custom', path: [secret], message });
  }
}

/** Undefined: plaintext. */
function filesOf<T extends z.output<typeof serverTls>>(tls: T) {
  const { certificate, private_key: privateKey } = tls;
  if (certificate === undefined || privateKey === undefined) return undefined;
  return { ...inCode(tls), certificate, privateKey };
}

function clientFilesOf({ session_ticket_secret_file: ticketSecret, ...tls }: z.output<typeof resumableTls>) {
  const files = filesOf(tls);
  return files && { ...files, ticketSecret };
}

const listenerTls = () =>
  resumableTls
    .superRefine(checkServerTls, evenIfWrong)
    .transform(clientFilesOf)
    .prefault({})
    .describe('TLS; left out or {}: plaintext. The files are watched and reloaded');

// biome-ignore format: a table, one key a line
const rule = z.strictObject({
  principals: z.array(principal()).min(1).optional().describe('SANs of client certificates: a URI, or dns:NAME; * is a wildcard. Left out: everyone'),
  types: z.array(resourceType()).min(1).optional().describe('Short names (cds) or type URLs. Left out: every type'),
  names: z.array(resourceNames()).min(1).optional().describe('Resource names and aliases; a trailing * makes a prefix. xdstp names mean the same in any spelling. Left out: every name'),
  allow: z.boolean().describe('Whether what this rule matches may be read'),
});

// biome-ignore format: a table, one key a line
const authorization = z
  .strictObject({
    rules: z.array(rule).prefault([]).describe('The first match wins; once there is a rule, what no rule matches is denied'),
  })
  .transform(({ rules }) => rules);

// biome-ignore format: a table, one key a line
const clientStatus = z.strictObject({
  enabled: z.boolean().default(true).describe('Whether CSDS is served on this port; the admin listener always serves it'),
  principals: z.array(principal()).prefault([]).describe('SANs of client certificates. Clients with one of them see all clients, and what the relay itself has, whatever the rules say. Others see their own streams'),
});

const modePattern = '^0[0-7]{3}$';
const fileMode = () =>
  parsed(
    (text) =>
      new RegExp(modePattern).test(text)
        ? ok(Number.parseInt(text, 8))
        : fail(`${JSON.stringify(text)} is not a mode: use four octal digits, as in "0666"`),
    { pattern: modePattern },
  );

/** Of `xds`. */
export const defaultAddress = '0.0.0.0:18000';

// biome-ignore format: a table, one key a line
const xds = z
  .strictObject({
    address: listenAnywhere().prefault(defaultAddress).describe('HOST:PORT (port 0: any free port) or unix:PATH'),
    unix_mode: fileMode().optional().describe('Mode of the socket at unix:PATH, as in "0666" for clients of every user; left out: what the umask leaves, so mostly only the user of the relay can connect'),
    tls: listenerTls(),
    authorization: authorization.prefault({}).describe('Who may read what. What is denied is left out'),
    client_status: clientStatus.prefault({}).describe('CSDS, the client status service: who sees what'),
    sotw_versions: z.enum(['VERBATIM', 'CONTENT']).default('VERBATIM').describe("version_info of SotW responses. VERBATIM: the control plane's; CONTENT: with a hash of the content, so that a client that reconnects is not sent what it already has"),
    plain_clients: z.enum(['PLAIN', 'WITH_CONSTRAINTS']).default('PLAIN').describe('How clients that subscribe by plain names get resources with constraints: under the plain name, or to the letter of TP2'),
    legacy_wildcard: z.array(resourceType()).optional().describe('Types for which an empty first request means everything, instead of the default (LDS, CDS, SRDS, VHDS and unknown types)'),
    removal_grace: duration().prefault('15s').describe('How long a client keeps a removed resource that its other resources still refer to, such as a cluster of its routes; 0: not at all'),
    max_connection_age: positiveDuration().optional().describe('Connections older than this are closed, with jitter, to rebalance clients; default: never'),
  })
  .superRefine((listener, context) => {
    if (read(listener, 'unix_mode') === undefined || read(read(listener, 'address'), 'kind') !== 'tcp') return;
    const message = 'only an address unix:PATH has a mode';
    context.addIssue({ code: 'custom', path: ['unix_mode'], message });
  }, evenIfWrong)
  .transform(inCode);

// biome-ignore format: a table, one key a line
const rest = z.strictObject({
  address: listenAddress().prefault('0.0.0.0:18001').describe('HOST:PORT; port 0: any free port'),
  tls: listenerTls(),
});

// biome-ignore format: a table, one key a line
const admin = z
  .strictObject({
    address: listenAddress().prefault('127.0.0.1:19000').describe('HOST:PORT; port 0: any free port'),
    tls: serverTls.superRefine(checkServerTls, evenIfWrong).transform(filesOf).prefault({}).describe('TLS; left out or {}: plaintext. The files are watched and reloaded. With ca, only clients with a certificate issued by it are served'),
    hosts: z.array(parsed(checkHost)).prefault([]).describe('Host names and addresses that requests may name, besides loopback ones and the bound address; * stands for any characters'),
    read_only: z.boolean().default(false).describe('Refuse calls that change something, such as the ReleaseRemovals RPC'),
  })
  .transform(inCode);

/** Read by everybody who can reach it: nothing here names a client or a resource. */
// biome-ignore format: a table, one key a line
const metrics = z.strictObject({
  address: listenAddress().prefault('0.0.0.0:19090').describe('HOST:PORT; port 0: any free port'),
});

const listeners = ['xds', 'rest', 'admin', 'metrics'] as const;

/** They listen on every address of the machine. */
export const everywhere: ReadonlySet<string> = new Set(['0.0.0.0', '::']);

/** Two listeners on one address: the second could not start. */
function checkListeners(file: unknown, context: z.core.$RefinementCtx): void {
  const known: {
    readonly listener: string;
    readonly host: string;
    readonly port: number;
  }[] = [];
  for (const listener of listeners) {
    const address = read(read(file, listener), 'address');
    const [host, port] = [readText(address, 'host'), read(address, 'port')];
    if (host === undefined || typeof port !== 'number' || port === 0) continue;
    const taken = known.find(
      (one) => one.port === port && (one.host === host || everywhere.has(one.host) || everywhere.has(host)),
    );
    if (taken !== undefined) {
      const message = `${formatHostPort(host, port)} is already used by ${taken.listener}.address (${formatHostPort(taken.host, taken.port)}): each listener needs its own port`;
      context.addIssue({ code: 'custom', path: [listener, 'address'], message });
    }
    known.push({ listener, host, port });
  }
}

// biome-ignore format: a table, one key a line
const upstreamTls = clientTls('control plane', 'endpoint')
  .extend({
    server_identities: z.array(principal()).optional().describe('SANs: a URI as in spiffe://example.com/control-plane, or dns:NAME; * is a wildcard. The certificate must have one of them, and its name is not checked. Default: the name is checked'),
  })
  .superRefine(certificateWithKey, evenIfWrong)
  .transform((given) =>
    Object.keys(given).length === 0 ? undefined : { ...tlsOf(given), serverIdentities: given.server_identities ?? [] },
  );

// biome-ignore format: a table, one key a line
const keepalive = z
  .strictObject({
    time: positiveDuration().prefault('30s').describe('A ping is sent after this long without a message. Control planes made with grpc-go close connections that ping more often than their policy allows (5 minutes by default)'),
    timeout: positiveDuration().prefault('10s').describe('Without an answer within this time, the connection is closed'),
  })
  .transform(inCode);

// biome-ignore format: a table, one key a line
const backoff = z
  .strictObject({
    initial: positiveDuration().prefault('0.5s').describe('Wait after the first failure'),
    max: positiveDuration().prefault('30s').describe('The longest wait'),
  })
  .superRefine((waits, context) => {
    const [initial, max] = [read(waits, 'initial'), read(waits, 'max')];
    if (typeof initial === 'number' && typeof max === 'number' && initial > max) {
      context.addIssue({ code: 'custom', path: ['max'], message: 'must not be shorter than initial' });
    }
  }, evenIfWrong)
  .transform(inCode);

const headers = z.record(z.string(), z.string()).superRefine((given, context) => {
  for (const [header, value] of Object.entries<unknown>(given)) {
    const checked = [
      checkHeaderName(header),
      typeof value === 'string' ? checkHeaderValue(value) : ok(value),
    ];
    for (const { error } of checked.filter((result) => !result.ok))
      context.addIssue({ code: 'custom', path: [header], message: error });
  }
}, evenIfWrong);

// biome-ignore format: a table, one key a line
const ads = z
  .strictObject({
    endpoints: z.array(endpoint()).min(1).describe('Control planes in order of preference, for failover and failback. HOST:PORT or unix:PATH; a host name stands for all its addresses'),
    protocol: z.enum(['DELTA', 'SOTW']).default('DELTA').describe('Which xDS protocol variant to speak'),
    services: z.enum(['AGGREGATED', 'PER_TYPE']).default('AGGREGATED').describe('AGGREGATED: ADS. PER_TYPE: the gRPC service of each type, for control planes without ADS: a stream for each type, without an order between types. Types without a service are not served from here'),
    variants: z.enum(['PER_PARAMETERS', 'NATIVE']).default('PER_PARAMETERS').describe('PER_PARAMETERS: one session for each parameter set, for control planes that decide by node (no rules: one session). NATIVE: the control plane speaks TP2'),
    tls: upstreamTls.optional().describe('TLS towards the control plane; left out or {}: plaintext'),
    headers: headers.optional().describe('Headers sent with each stream: a mapping from names to values, which /config_dump does not show'),
    token_file: name().optional().describe('A file with a token, sent as "authorization: Bearer …". Read for each stream: a new token is used from the next one on'),
    connect_timeout: positiveDuration().prefault('5s').describe('After this the next endpoint is tried'),
    resource_timeout: positiveDuration().prefault('15s').describe('A name that is not answered within this time is absent: in delta of any type, in SotW of LDS, CDS and SRDS, where silence means that. What is held from before stays while the control plane says nothing at all, or has an error for it'),
    keepalive: keepalive.prefault({}).describe('HTTP/2 pings'),
    backoff: backoff.prefault({}).describe('Waits between attempts: exponential, with full jitter'),
    failback_after: positiveDuration().prefault('30s').describe('How long a preferred endpoint must hold a connection before the sessions go back to it, and the wait between two tries of it'),
  })
  .superRefine((ads, context) => {
    const isSet = Object.keys(read(ads, 'headers') ?? {}).some((one) => one.toLowerCase() === 'authorization');
    if (read(ads, 'token_file') === undefined || !isSet) return;
    const message = 'token_file sets "authorization": only one of them is accepted';
    context.addIssue({ code: 'custom', path: ['headers'], message });
  }, evenIfWrong)
  .transform(({ headers = {}, ...ads }) => ({
    kind: 'ads' as const,
    ...inCode(ads),
    headers: Object.entries(headers).map(([header, value]) => [header.toLowerCase(), value] as const),
  }));

// biome-ignore format: a table, one key a line
const filesystem = z
  .strictObject({
    path: name().describe('Every *.json, *.yaml, *.yml, *.pb and *.pb_text below this directory is a DiscoveryResponse, but for names that begin with a dot, lost+found and kustomization.yaml; watched'),
  })
  .transform(({ path }) => ({ kind: 'filesystem' as const, path }));

// biome-ignore format: a table, one key a line
const siblings = z.strictObject({
  address: endpoint().describe("The xds listeners of this relay's other replicas: a name with all their addresses, such as that of a headless Service. HOST:PORT or unix:PATH"),
  tls: upstreamTls.optional().describe('TLS towards them; left out or {}: plaintext'),
});

// biome-ignore format: a table, one key a line
const upstream = z
  .strictObject({
    name: name().describe('Its name in metrics, logs and status; unique'),
    authorities: z.array(authority()).prefault([]).describe('Claims the xdstp names of these authorities'),
    types: z.array(resourceType()).prefault([]).describe('Claims these types; with names, only what matches both: short names (cds) or type URLs'),
    names: z.array(resourceNames()).prefault([]).describe('Claims these names; a trailing * makes a prefix'),
    required: z.boolean().default(true).describe('The relay is not ready until this upstream was connected once; false: it does not wait for it'),
    ads: ads.optional().describe('A control plane'),
    filesystem: filesystem.optional().describe('Files'),
    siblings: siblings.optional().describe('Other replicas of this relay. While every endpoint of ads is unreachable, they are asked for what is not cached here. Their answers are served as stale, until the control plane answers'),
    load_reports: z.enum(['AGGREGATE', 'OFF']).default('AGGREGATE').describe('Load reports (LRS) of clients. AGGREGATE: each session of a control plane gets the sums of what its clients report, as it asks for them. OFF: none'),
    max_removal_percent: z.number().min(0).max(100).optional().describe("Removals after a reconnect of more than this share of a type's resources are held back; with `rollout`, for gated types, at any time, with the change that they are in; default: off"),
    max_removal_hold: positiveDuration().prefault('10m').describe('What max_removal_percent holds back is removed after this time, unless it is released or sent again; with `rollout` the canaries decide then'),
  })
  .superRefine(exactlyOne('upstream', 'ads', 'filesystem'), evenIfWrong)
  .superRefine((entry, context) => {
    if (read(entry, 'siblings') === undefined || read(entry, 'ads') !== undefined) return;
    const message = 'is for control planes: this upstream has no ads';
    context.addIssue({ code: 'custom', path: ['siblings'], message });
  }, evenIfWrong);

/** As upstream/claims.ts decides. What an entry claims is not known if its claims are wrong, or one of its keys. */
export function servesEverything(entry: unknown): boolean {
  const wrong = upstream.safeParse(entry).error?.issues ?? [];
  if (wrong.some(({ path: [key] }) => key === undefined || isClaim.has(key))) return false;
  if (readList(entry, 'types').length > 0 || read(read(entry, 'ads'), 'services') === 'PER_TYPE')
    return false;
  const names = readList(entry, 'names');
  return names.length === 0 ? readList(entry, 'authorities').length === 0 : names.includes('*');
}

const isClaim: ReadonlySet<PropertyKey> = new Set(['authorities', 'types', 'names']);

const upstreams = z
  .array(upstream)
  .min(1)
  .superRefine(
    uniqueNames((text, first) => `${text} is also the name of upstreams[${first}]: names must be unique`),
    evenIfWrong,
  )
  .transform((list) =>
    list.flatMap(({ ads, filesystem, authorities, types, names, ...entry }) => {
      const services = ads?.services === 'PER_TYPE' ? { services: ads.protocol } : {};
      const common = { ...inCode(entry), claims: { authorities, types, names, ...services } };
      // Each entry has exactly one of them.
      return [ads, filesystem].flatMap((kind) => (kind === undefined ? [] : Object.assign(kind, common)));
    }),
  )
  .describe(
    'Where resources come from. The first that claims a name serves it; one without claims serves everything',
  );

/** They are gRPC's, HTTP/2's or the relay's own. */
const reserved = new Set([
  'connection',
  'content-length',
  'content-type',
  'host',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'user-agent',
  VIA_HEADER,
]);

/** A header of the streams to a control plane, in lower case. */
function checkHeaderName(text: string): Result<string> {
  const name = text.toLowerCase();
  if (reserved.has(name) || name.startsWith('grpc-'))
    return fail(`the header ${JSON.stringify(name)} is set by gRPC or by the relay: leave it out`);
  if (/^[a-z0-9_.-]+$/.test(name) && !name.endsWith('-bin')) return ok(name);
  return fail(
    `${JSON.stringify(text)} is not a header: use letters, digits, "-", "_" and ".", without "-bin" at the end`,
  );
}

/** The error does not repeat the value, which may be a secret. */
function checkHeaderValue(value: string): Result<string> {
  return /^[\x20-\x7e]+$/.test(value) && value.trim() === value
    ? ok(value)
    : fail('the value of a header must be visible ASCII, without spaces at its ends');
}

/** The paths into a node that a parameter rule can read (`from`) and write (`to`). */
const writable = [
  'node.id',
  'node.cluster',
  'node.locality.region',
  'node.locality.zone',
  'node.locality.sub_zone',
];
const readable = [
  ...writable,
  'node.user_agent_name',
  'node.user_agent_version',
  'node.client_features',
  'peer.uri_san',
  'peer.dns_san',
];
const metadataPath = 'node.metadata.';

/** Below `node.metadata`, any keys; one with dots in brackets and quotes. */
function checkPath(text: string, known: readonly string[]): Result<string> {
  if (known.includes(text)) return ok(text);
  if (text.length > longestPath) return fail(`is longer than ${longestPath} characters`);
  const [part, ...keys] = nodePath(text) ?? [];
  if (part === 'metadata' && keys.length > 0) return ok(text);
  return fail(expectedText(anyOf([`${metadataPath}KEY.KEY…`, 'node.metadata["KEY"]', ...known]), text));
}

/** `PATH`, or `PATH=TEMPLATE` with the keys of parameters in `${}`. */
function checkTo(text: string): Result<string> {
  const { path, template } = parseShown(text);
  const checked = checkPath(path, writable);
  if (!checked.ok) return checked;
  return template === '' ? fail(`${JSON.stringify(text)} has no template after "="`) : ok(text);
}

/** Some of the keys that a `to` names and no rule has. */
const unknownKeys = (to: string, keys: ReadonlySet<unknown>): readonly string[] =>
  [...new Set(templateKeys(parseShown(to).template ?? ''))].filter((key) => !keys.has(key)).slice(0, 10);

/** Where a rule writes that does not say so. */
const defaultTo = (key: string): string => metadataPath + key;

/** The text of what is below a place begins with that of the place. Empty: it is no path. */
const placeOf = (to: string): string =>
  (nodePath(parseShown(to).path) ?? []).map((step) => `${JSON.stringify(step)}.`).join('');

/** One is the other, or a part of it: they cannot both be written. */
const placesClash = (a: string, b: string): boolean =>
  a !== '' && b !== '' && (a.startsWith(b) || b.startsWith(a));

/** A relay above refuses what is longer. */
const nodeText = () =>
  name().refine((text) => Buffer.byteLength(text) <= mostNodeText, {
    error: `is longer than ${mostNodeText} bytes`,
  });

// biome-ignore format: a table, one key a line
const locality = z.strictObject({
  region: z.string().default('').describe('Region'),
  zone: z.string().default('').describe('Zone'),
  sub_zone: z.string().default('').describe('Sub-zone'),
}).transform(inCode);

// biome-ignore format: a table, one key a line
const node = z.strictObject({
  id: nodeText().default('distributary').describe("The relay's node id"),
  cluster: nodeText().default('distributary').describe("The relay's node cluster"),
  metadata: z.record(z.string(), z.json()).default({}).describe('Node metadata, any JSON'),
  locality: locality.prefault({}).describe("The relay's locality"),
});

// biome-ignore format: a table, one key a line
const parameter = z
  .strictObject({
    key: name().describe('The dynamic parameter'),
    from: parsed((text) => checkPath(text, readable)).describe('node.id, node.cluster, node.metadata.A.B, node.metadata["a.b/c"], node.locality.region|zone|sub_zone, node.user_agent_name, node.user_agent_version, node.client_features (the first feature that "pattern" matches), peer.uri_san or peer.dns_san'),
    authorities: z.array(authority()).prefault([]).describe('Only for xdstp names of these authorities; empty: for every name'),
    pattern: z.string().optional().describe('RE2 syntax; the first group is the value'),
    default: z.string().optional().describe('Value if there is none; left out: the key is absent'),
    values: z.array(z.string()).prefault([]).describe('The allowed values. Any other value counts as absent, in a locator too. Empty: every value is allowed'),
    to: parsed(checkTo).optional().describe('Where a PER_PARAMETERS session shows it to the control plane: node.id, node.cluster, node.locality.… or node.metadata.…, also node.metadata["app.kubernetes.io/name"]; PATH=TEMPLATE shows a text with parameters, as in node.id=x.$${ns}~$${ns}.local ($${ is a literal ${); default node.metadata.<key>'),
    trusted: z.boolean().default(false).describe('The derived value wins over one that the client sends. The same for all rules of a key'),
  })
  .superRefine((rule, context) => {
    if (readText(rule, 'from') !== 'node.client_features' || read(rule, 'pattern') !== undefined) return;
    const message = `node.client_features is a list: "pattern" says which feature is meant, as in '^(envoy\\.lb\\..*)$'`;
    context.addIssue({ code: 'custom', path: ['from'], message });
  }, evenIfWrong)
  .superRefine((rule, context) => {
    const fallback = readText(rule, 'default');
    const values = readList(rule, 'values');
    if (fallback === undefined || values.length === 0 || values.includes(fallback)) return;
    const message = `${JSON.stringify(fallback)} is not one of "values": use ${values.map((value) => JSON.stringify(value)).join(', ')}`;
    context.addIssue({ code: 'custom', path: ['default'], message });
  }, evenIfWrong)
  .superRefine((rule, context) => {
    const key = readText(rule, 'key');
    if (key === undefined || key === '' || readText(rule, 'to') !== undefined || checkTo(defaultTo(key)).ok)
      return;
    context.addIssue(
      `${JSON.stringify(defaultTo(key))} is not a path: a key such as ${JSON.stringify(key)} needs a "to"`,
    );
  }, evenIfWrong);

/** Rules that no name is subject to together may write to one place. */
const sameNames = (a: ReadonlySet<unknown>, b: ReadonlySet<unknown>): boolean =>
  a.size === 0 || b.size === 0 || !a.isDisjointFrom(b);

/** Each is compared with all others, and applied to each client. */
const mostRules = 1000;

/** Also when some of the rules are wrong, but not when there are too many. */
const ofFewRules = {
  when: ({ value }: { readonly value: unknown }) => Array.isArray(value) && value.length <= mostRules,
};

/** Of the patterns of all rules. */
const mostCompiled = 50_000;

/** RE2 compiles them; what RE2 lacks (look-around, back-references) is refused. */
function checkPatterns(list: readonly unknown[], context: z.core.$RefinementCtx): void {
  let cost = 0;
  for (const [index, rule] of list.entries()) {
    const pattern = readText(rule, 'pattern') ?? '';
    cost += compileCost(pattern);
    const compiled =
      cost > mostCompiled
        ? fail(
            `with this pattern, those of all rules come to more than ${mostCompiled} characters with their repetitions written out`,
          )
        : attempt(
            () => RE2JS.compile(pattern),
            (error) => `not an RE2 pattern: ${errorMessage(error)}`,
          );
    if (!compiled.ok) context.addIssue({ code: 'custom', path: [index, 'pattern'], message: compiled.error });
    if (cost > mostCompiled) return;
  }
}

/** A client could set by the one rule what the other is there to protect. */
function checkTrust(list: readonly unknown[], context: z.core.$RefinementCtx): void {
  const rules = list.map((rule) => ({
    key: readText(rule, 'key'),
    from: readText(rule, 'from'),
    trusted: read(rule, 'trusted') ?? false,
  }));
  const said = (index: number): string => {
    const { from, trusted } = rules[index] ?? {};
    return `parameters[${index}] (from ${JSON.stringify(from)}, trusted: ${JSON.stringify(trusted)})`;
  };
  rules.forEach(({ key, trusted }, index) => {
    const other = rules.findIndex(
      (earlier, at) => at < index && earlier.key === key && earlier.trusted === (trusted !== true),
    );
    if (key === undefined || typeof trusted !== 'boolean' || other === -1) return;
    const message = `${said(other)} and ${said(index)} are both for the key ${JSON.stringify(key)}: all rules of a key need the same "trusted"`;
    context.addIssue({ code: 'custom', path: [index, 'trusted'], message });
  });
}

const parameters = z
  .array(parameter)
  .max(mostRules)
  .prefault([])
  .superRefine(checkPatterns, ofFewRules)
  .superRefine(checkTrust, ofFewRules)
  .superRefine((list, context) => {
    const rules = list.map((rule: unknown) => {
      const key = readText(rule, 'key');
      const to = readText(rule, 'to') ?? (key === undefined ? '' : defaultTo(key));
      return { key, to, place: placeOf(to), names: new Set(readList(rule, 'authorities')) };
    });
    const keys = new Set(rules.map(({ key }) => key));
    rules.forEach(({ key, to, place, names }, index) => {
      for (const unknown of unknownKeys(to, keys)) {
        const message = `\${${unknown}} is not the key of any rule: use the keys of "parameters"`;
        context.addIssue({ code: 'custom', path: [index, 'to'], message });
      }
      // Two parameters shown in one place: the control plane could not tell their sets apart (protocol §5).
      const clash = rules.findIndex(
        (earlier, at) =>
          at < index &&
          earlier.key !== key &&
          placesClash(earlier.place, place) &&
          sameNames(earlier.names, names),
      );
      if (clash === -1) return;
      const message = `${to} is already written by parameters[${clash}] (key ${JSON.stringify(rules[clash]?.key)}): each key needs its own "to"`;
      context.addIssue({ code: 'custom', path: [index, 'to'], message });
    });
  }, ofFewRules)
  .transform((rules) =>
    rules.map(({ key, pattern, default: fallback, to = defaultTo(key), ...rest }) => ({
      ...rest,
      key,
      pattern,
      default: fallback,
      to,
    })),
  )
  .describe(
    `Dynamic parameters of clients that send none of their own. At most ${mostRules} rules, whose patterns together have at most ${mostCompiled} characters with their repetitions written out`,
  );

// biome-ignore format: a table, one key a line
const persistence = z.strictObject({
  path: name().describe('Directory of the database'),
  secrets: z.boolean().default(false).describe('Keep SDS secrets on disk too'),
  leave_out: z.array(resourceType()).default([]).describe('Types that are not kept on disk, such as those whose resources have private keys inline; what the disk has of them is removed'),
}).transform(inCode);

// biome-ignore format: a table, one key a line
const cache = z
  .strictObject({
    max_bytes: count().default(1_073_741_824).describe('Bytes of cached resources and of subscribed names, per process. The least recently used entries that nobody subscribes to are evicted first; what files have counts, and is never evicted'),
    idle_ttl: duration().prefault('600s').describe('An entry that nobody subscribes to, and its upstream subscription, ends after this, but what files have stays; a name that does not exist, and endpoints that no cluster refers to, after 2 s'),
    persistence: persistence.optional().describe('Last known good on disk; left out: off'),
  })
  .transform(inCode);

/** The least that the first request of a client takes: its node, a type and some names. */
const leastRequestBytes = 1024;

// biome-ignore format: a table, one key a line
const limits = z
  .strictObject({
    max_streams: count().default(20_000).describe('Open streams of clients, over all workers'),
    max_subscriptions_per_stream: count().default(10_000).describe('Names and locators that one stream may be subscribed to, over all its types; a type without names counts as one. One request may not name more either, duplicates included. A stream has at most 100 types'),
    max_request_bytes: count(leastRequestBytes).default(4_194_304).describe('The largest request accepted from a client, and the most characters of names that a stream may be subscribed to'),
    max_poll_bytes: count(leastRequestBytes).default(1_048_576).describe('The largest body accepted on the rest listener'),
    max_response_bytes: count().default(67_108_864).describe('The largest response accepted from a control plane, or sent to a client: over REST its JSON'),
    subscription_changes_per_second: count().default(100).describe('Per stream; above this rate reading pauses. ACKs are free. A change counts once, plus once for each 500 resources of the changed subscription. Of a peer as many changes of what it polls, and of the node of load reports'),
    max_constraint_depth: count().max(1000).default(64).describe('How deep TP2 constraints may be nested'),
    max_upstream_sessions: count().default(1000).describe('PER_PARAMETERS sessions of each upstream. One stream may use a quarter of them, or 8, one peer half of them, or 16, which workers divide. They share one connection: what is before the control plane has to allow two streams for each, and one more for load reports'),
    stalled_timeout: positiveDuration().prefault('60s').describe('A client is disconnected if it reads nothing for this long, or takes longer to finish a message'),
    first_request_timeout: positiveDuration().prefault('10s').describe("A stream whose first request has not arrived within this time ends with DEADLINE_EXCEEDED. Time in which it waits for its peer's turn does not count. One that its client has half-closed is answered for no longer than this, and ends with OK"),
    max_connections: count().default(40_000).describe('Open connections of clients, over all workers'),
    max_connections_per_peer: count(0).default(0).describe('Open connections of one peer in each worker; a peer is its verified identity, else its address without the port; 0: any number'),
    max_streams_per_peer: count(0).default(0).describe('Open streams of one peer in each worker; 0: any number'),
    max_held_bytes: count().default(1_073_741_824).describe('Bytes held for single peers, all of them together, in each worker: parts of requests, large requests, what only one peer subscribes to, what polls leave'),
    max_held_bytes_per_peer: count().default(268_435_456).describe('The same for one peer, in each worker. What several peers share counts for none of them. Responses wait until their peer has read enough: those to single clients, and past as many bytes those that others get too'),
    max_work_per_peer: positiveDuration().prefault('500ms').describe('Work of one peer per second, in each worker. Every peer gets turns of 4 ms; above this, it gets turns of 1 ms. While no other peer has work, it may use all the time there is'),
    max_load_report_clusters: count().default(10_000).describe("Clusters of one client in the sums of load reports. What is more is left out, and counted"),
    relay_peers: z.array(principal()).prefault([]).describe('Principals of other relays. Limits per client do not apply to them, and the relay trusts them when they say which relays are below them, and how their load reports were added up'),
  })
  .transform(inCode);

/** An OTLP collector, or nothing. */
const otlpEndpoint = parsed((text) => {
  if (text === '') return ok(undefined);
  if (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)) return ok(text);
  return fail(
    `${JSON.stringify(text)} is not the URL of an OTLP collector: use one with http:// or https://, or "" for no traces`,
  );
});

// biome-ignore format: a table, one key a line
const watchdog = z.strictObject({
  enabled: z.boolean().default(true).describe('Whether the watchdog runs'),
  timeout: positiveDuration().prefault('30s').describe('A process whose event loop is blocked for this long aborts. After a sixth of it the log says where it is blocked; a worker is replaced after a third'),
}).transform(inCode);

// biome-ignore format: a table, one key a line
const tracing = z.strictObject({
  otlp_endpoint: otlpEndpoint.prefault('').describe('URL of an OTLP collector (HTTP, as http://collector:4318); empty: off'),
  ratio: z.number().min(0).max(1).default(0.01).describe('Share of the updates that are traced: 1 is all, 0.01 is one in a hundred'),
}).transform(inCode);

/**
 * The file, strict: each key with its default and its meaning. The output is what the program uses (config.ts): values
 * parsed, every default filled in, names in camelCase, durations in milliseconds (`…Ms`).
 */
// biome-ignore format: a table, one key a line
export const fileSchema = z
  .strictObject({
    $schema: z.string().optional().describe('Where editors find this schema'),
    node: node.prefault({}).describe('Who the relay is to control planes'),
    xds: xds.prefault({}).describe('The gRPC listener: ADS, every per-type service, CSDS, health, reflection'),
    rest: rest.optional().describe('The listener for clients that poll, in JSON (api_type: REST). The rules and limits of xds apply here too. With workers, let clients use HTTP/2: what a client still refers to is known per connection. Left out: off'),
    admin: admin.prefault({}).describe('The admin listener: status page, metrics, health, admin RPC'),
    metrics: metrics.optional().describe('A listener with /metrics, /ready and /healthz and nothing else, so that admin can stay on loopback. Left out: off'),
    upstreams,
    parameters,
    cache: cache.prefault({}).describe('What is kept, and how long'),
    limits: limits.prefault({}).describe('Bounds on what clients and control planes may ask for'),
    rollout: rollout.optional().describe('A change goes to a few clients of each class first, and to the others when those accept it. Left out: to everyone at once'),
    history,
    workers: count(0).max(1024).default(0).describe('Above 0: the number of serving processes on this machine. Clients that poll should then use HTTP/2 (rest)'),
    drain_delay: duration().prefault('0s').describe('After SIGTERM the relay reports that it is not ready, and keeps serving for this time, so that load balancers notice'),
    drain_timeout: duration().prefault('10s').describe('After SIGTERM and drain_delay, connections are closed over this time'),
    watchdog: watchdog.prefault({}).describe('Detects a process whose event loop is blocked, and ends it, so that its supervisor starts another'),
    tracing: tracing.prefault({}).describe('Traces'),
  })
  .superRefine(checkRollout, evenIfWrong)
  .superRefine(checkListeners, evenIfWrong)
  .transform(inCode)
  .describe('Configuration of distributary, a caching xDS relay');
