import { RE2JS } from 're2js';
import * as z from 'zod';
import { longestPath, mostNodeText, nodePath, parseShown, templateKeys } from '../model/node-path.ts';
import { attempt, errorMessage, fail, ok, type Result } from '../model/result.ts';
import { anyOf, expectedText } from '../model/text.ts';
import { compileCost } from '../security/pattern.ts';
import { admin, checkListeners, metrics, rest, xds } from './schema-listeners.ts';
import {
  authority,
  count,
  duration,
  evenIfWrong,
  inCode,
  name,
  parsed,
  positiveDuration,
  principal,
  read,
  readList,
  readText,
  resourceType,
} from './schema-parts.ts';
import { checkRollout, history, rollout } from './schema-rollout.ts';
import { upstreams } from './schema-upstreams.ts';

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
