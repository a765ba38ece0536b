import * as z from 'zod';
import { fail, ok, type Result } from '../model/result.ts';
import { VIA_HEADER } from '../wire/via.ts';
import {
  authority,
  certificateWithKey,
  clientTls,
  endpoint,
  evenIfWrong,
  exactlyOne,
  inCode,
  name,
  positiveDuration,
  principal,
  read,
  readList,
  resourceNames,
  resourceType,
  tlsOf,
  uniqueNames,
} from './schema-parts.ts';

// biome-ignore format: a table, one key a line
const tls = clientTls('control plane', 'endpoint')
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
    tls: tls.optional().describe('TLS towards the control plane; left out or {}: plaintext'),
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
  tls: tls.optional().describe('TLS towards them; left out or {}: plaintext'),
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

export const upstreams = z
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
