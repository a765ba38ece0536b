import * as z from 'zod';
import { fail, ok } from '../model/result.ts';
import { notifiedEvents, type Wave } from '../model/rollout.ts';
import { anyOf, shorten } from '../model/text.ts';
import { gatedByDefault, knownTypes } from '../model/types.ts';
import {
  certificateWithKey,
  clientTls,
  count,
  evenIfWrong,
  exactlyOne,
  inCode,
  name,
  parsed,
  positiveDuration,
  principal,
  read,
  readList,
  readText,
  resourceType,
  tlsOf,
  uniqueNames,
} from './schema-parts.ts';

/** What is written there is not repeated: it may be a secret. */
const webUrl = () =>
  parsed((text) => {
    const url = URL.parse(text);
    if (url !== null && /^https?:$/.test(url.protocol) && url.hostname !== '' && url.port !== '0')
      return ok(text);
    return fail('is not a URL with http:// or https://, as in "http://prometheus:9090"');
  });

// biome-ignore format: a table, one key a line
const tls = clientTls('server', 'URL').superRefine(certificateWithKey, evenIfWrong).transform(tlsOf);

// biome-ignore format: a table, one key a line
const peer = {
  url: webUrl().describe('http:// or https://. No redirect is followed'),
  token_file: name().optional().describe('A file with a token, sent as "authorization: Bearer …". Read for each request'),
  tls: tls.optional().describe('For https: the files are read for each request. Left out: the authorities that come with Node'),
};

function checkPeer(entry: unknown, context: z.core.$RefinementCtx): void {
  if (read(entry, 'tls') === undefined || readText(entry, 'url')?.startsWith('http:') !== true) return;
  context.addIssue({ code: 'custom', path: ['tls'], message: 'is for https://: the url has http://' });
}

// biome-ignore format: a table, one key a line
const prometheus = z
  .strictObject({
    ...peer,
    url: webUrl().describe('Base URL of a server with the Prometheus API; /api/v1/query is appended to its path. No redirect is followed'),
    query: name().describe('PromQL whose result is a scalar or one sample'),
    min: z.number().optional().describe('A smaller value is BAD'),
    max: z.number().optional().describe('A larger value is BAD'),
  })
  .superRefine((entry, context) => {
    const [min, max] = [read(entry, 'min'), read(entry, 'max')];
    if (min === undefined && max === undefined) context.addIssue('min or max is missing: every value would be good');
    if (typeof min === 'number' && typeof max === 'number' && min > max)
      context.addIssue({ code: 'custom', path: ['max'], message: 'must not be less than min: every value would be bad' });
    checkPeer(entry, context);
  }, evenIfWrong)
  // `max` is no duration here, as it is in a backoff.
  .transform(({ max, ...rest }) => ({ ...inCode(rest), max }));

// biome-ignore format: a table, one key a line
const notify = z
  .array(
    z
      .strictObject({
        ...peer,
        hmac_file: name().optional().describe('A file with a key. Each request then has x-distributary-timestamp, and x-distributary-signature: sha256= and the HMAC of timestamp, a dot and body. Read for each request'),
        events: z.array(z.enum(notifiedEvents)).min(1).prefault([...notifiedEvents]).describe('What is told: a change is HELD, was DISCARDED, or was RELEASED to everybody, or one that was held is RESOLVED without that: upstream has taken it back, or says something else'),
      })
      .superRefine(checkPeer, evenIfWrong)
      .transform(inCode),
  )
  .prefault([]);

const webhook = z.strictObject(peer).superRefine(checkPeer, evenIfWrong).transform(inCode);

// biome-ignore format: a table, one key a line
const check = z
  .strictObject({
    name: name().max(100).describe('Its name in status, metrics and reasons; unique'),
    interval: positiveDuration().prefault('10s').describe('How often it is asked while a change waits'),
    timeout: positiveDuration().prefault('5s').describe('An answer that has not arrived within this time is UNKNOWN. Of a webhook the status is enough; that of Prometheus must be there whole'),
    failures: count().max(60).default(2).describe('BAD so many times in a row, the change is bad'),
    prometheus: prometheus.optional().describe('An instant query: one value within min and max is GOOD, outside of them BAD, all else UNKNOWN'),
    webhook: webhook.optional().describe('A POST with JSON that says what waits: 2xx is GOOD, 4xx and 5xx are BAD, all else is UNKNOWN'),
  })
  .superRefine(exactlyOne('check', 'prometheus', 'webhook'), evenIfWrong)
  .transform(inCode);

const checks = z
  .array(check)
  .max(32)
  .prefault([])
  .superRefine(
    uniqueNames((text, first) => `${text} is already the name of checks[${first}]: each check needs its own`),
    evenIfWrong,
  );

/** Without `percent` and `match`. */
const defaultPercent = 5;

const defaultTypes = knownTypes.filter(({ url }) => gatedByDefault.has(url)).map(({ short }) => short);

const percent = () => z.number().min(0.01).max(100).optional();
// biome-ignore format: a table, one key a line
const match = () => z.array(z.strictObject({ key: name().describe('A key of "parameters", of a rule without authorities'), value: z.string().describe('The value that makes a client a canary') })).prefault([]);

// biome-ignore format: a table, one key a line
const canary = z
  .strictObject({
    percent: percent().describe(`Percentage of the clients, chosen by a hash of the node id; default: ${defaultPercent} without "match", none with it`),
    match: match().describe('Clients for which the rules derive one of these parameters'),
  });

// biome-ignore format: a table, one key a line
const wave = z
  .strictObject({
    percent: percent().describe('Percentage of the clients, chosen by a hash of the node id, and at least one client of each class that subscribes to what changed; more than in the waves before'),
    match: match().describe('Clients for which the rules derive one of these parameters. Without "percent" these clients and no others'),
    bake: positiveDuration().optional().describe('How long the clients of this wave must stay connected after they have accepted a change; default: rollout.bake'),
  })
  .superRefine((entry, context) => {
    if (read(entry, 'percent') !== undefined || readList(entry, 'match').length > 0) return;
    context.addIssue({ code: 'custom', path: [], message: 'an empty wave: expected percent, match, or both' });
  }, evenIfWrong);

// biome-ignore format: a table, one key a line
const traffic = z
  .strictObject({
    max_error_increase: z.number().min(0).max(100).default(5).describe('A change is bad if it makes more requests fail, by more percentage points than this'),
    max_request_drop: z.number().min(0).max(100).default(50).describe('A change is bad if a client has fewer requests, by more percent than this'),
    min_requests: count().default(100).describe('Fewer requests say nothing'),
    interval: positiveDuration().refine((interval) => interval >= 100, 'is shorter than 100ms: clients would do nothing else').prefault('10s').describe('How often clients are asked to report. A client counts from its second report after it has accepted a change'),
  })
  .transform(inCode);

const bound = () => z.number().min(0);

// biome-ignore format: a table, one key a line
const guard = z
  .strictObject({
    max_emptied_percent: bound().max(100).default(20).describe('Percentage of the ClusterLoadAssignments that may lose all their endpoints within one bake; more are held, though eds is not among "types". 100: any'),
    max_lost_endpoints_percent: bound().max(100).optional().describe('Percentage of the endpoints of one ClusterLoadAssignment that it may lose within one bake; with more it is held, though eds is not among "types". Left out: any'),
    max_growth_percent: bound().optional().describe('By how many percent the bytes of a gated type may grow in one change: 100 is twice as many. Names that nobody has yet do not count. Left out: any'),
    max_changed_percent: bound().max(100).optional().describe('Percentage of the names of a gated type that one change may change or remove. Names that nobody has yet do not count. Left out: any'),
  })
  .transform(inCode);

export const defaultBake = '30s';
export const defaultMaxWait = '10m';

// biome-ignore format: a table, one key a line
export const rollout = z
  .strictObject({
    canary: canary.optional().describe(`Who gets a change first: clients of either kind, and at least one client of each class that subscribes to what changed. It is a single wave. Left out, and no waves: ${defaultPercent} percent`),
    waves: z.array(wave).min(1).optional().describe('Who gets a change after whom, instead of "canary": each wave adds clients to those before, and the next begins when they have accepted the change and its bake is over. After the last one everybody gets it'),
    canary_principals: z.array(principal()).prefault([]).describe('Clients that may be canaries, by their certificates, as in xds.authorization; this needs xds.tls.ca. Empty: every client'),
    bake: positiveDuration().prefault(defaultBake).describe('How long the canaries must stay connected after they have accepted a change; another change restarts it'),
    max_wait: positiveDuration().prefault(defaultMaxWait).describe('How long to wait for a verdict; then on_timeout applies. Another change does not restart it, the end of a hold does'),
    on_timeout: z.enum(['HOLD', 'PROCEED']).default('HOLD').describe('HOLD: the others keep what they have. PROCEED: everybody gets the change, unless a canary rejects it'),
    on_failure: z.enum(['HOLD', 'DISCARD']).default('HOLD').describe('What becomes of a change that was found bad. HOLD: those who have it keep it, and nobody else gets it. DISCARD: they go back at once'),
    max_disconnects: z.number().min(0).max(100).default(20).describe('Percentage of the canaries of a class that may leave within the bake, by their nodes'),
    guard: guard.prefault({}).describe('A change that shows by its content alone that nobody should get it is held, with the cause content. Each bound is for one session of an upstream: with parameter sets of their own, for each of them'),
    types: z.array(resourceType()).min(1).prefault(defaultTypes).describe('These types go to canaries first; others go straight to everybody'),
    notify: notify.describe('Servers that are told by a POST with JSON what becomes of a change. It is sent again for half a minute until the answer is 2xx'),
    checks: checks.describe('Servers that say whether all is well. They are asked while a change waits'),
    traffic: traffic.optional().describe("Clients report their requests (LRS), and those that have a change are compared with those of the same class that have not. Left out: off"),
    mode: z.enum(['AUTOMATIC', 'MANUAL']).default('AUTOMATIC').describe('MANUAL: a change waits for `release`, and in each of several waves for `promote`, whatever the canaries say'),
  })
  .superRefine(checkWaves, evenIfWrong)
  .transform(inCode)
  .transform(({ canary: single = { match: [] }, waves, ...rest }) => ({
    ...rest,
    waves: waves?.map(waveOf) ?? [singleWave(single)],
  }));

const waveOf = ({ percent, match, bake }: z.output<typeof wave>, index: number): Wave => ({
  path: `rollout.waves[${index}]`,
  percent: percent ?? 0,
  match,
  elects: percent !== undefined,
  bakeMs: bake,
});

/** `rollout.canary` elects one client of each class in any case. */
const singleWave = ({ percent, match }: z.output<typeof canary>): Wave => ({
  path: 'rollout.canary',
  percent: percent ?? (match.length === 0 ? defaultPercent : 0),
  match,
  elects: true,
  bakeMs: undefined,
});

function checkWaves(entry: unknown, context: z.core.$RefinementCtx): void {
  if (read(entry, 'waves') === undefined) return;
  if (read(entry, 'canary') !== undefined) {
    const message = 'rollout.canary is a single wave: expected either canary or waves';
    context.addIssue({ code: 'custom', path: ['canary'], message });
  }
  let before = 0;
  for (const [index, one] of readList(entry, 'waves').entries()) {
    const percent = read(one, 'percent');
    if (typeof percent !== 'number') continue;
    if (percent <= before) {
      const message = `a wave adds clients to those before: expected more than ${before}`;
      context.addIssue({ code: 'custom', path: ['waves', index, 'percent'], message });
    }
    before = Math.max(before, percent);
  }
}

// biome-ignore format: a table, one key a line
const bodies = z
  .strictObject({
    max_bytes: count().default(67_108_864).describe('Bytes of resources of earlier revisions; the oldest revisions are dropped first'),
    max_age: positiveDuration().prefault('24h').describe('Older revisions are dropped'),
  })
  .transform(inCode);

export const history = z
  .union([z.literal(false).transform(() => undefined), bodies])
  .prefault({})
  .describe(
    'How much of earlier revisions is kept, for diff and rollback. false: the last 100 changes, without resources',
  );

/** What joins `rollout` with the rest of the file. */
export function checkRollout(file: unknown, context: z.core.$RefinementCtx): void {
  const section = read(file, 'rollout');
  if (section === undefined) return;
  // What is read may still be as the file has it, if something else in it is wrong.
  const isVerified = read(read(read(file, 'xds'), 'tls'), 'ca') !== undefined;
  const principals = ['canary_principals', 'canaryPrincipals'].flatMap((key) => readList(section, key));
  if (principals.length > 0 && !isVerified) {
    const message =
      'without xds.tls.ca no client is verified, so nobody would be a canary: set it, or leave this list empty';
    context.addIssue({ code: 'custom', path: ['rollout', 'canary_principals'], message });
  }
  const rules = readList(file, 'parameters');
  const keys = new Set(rules.map((rule) => readText(rule, 'key')));
  // Who is a canary does not depend on what a client asks for.
  const values = valuesByKey(rules.filter((rule) => readList(rule, 'authorities').length === 0));
  const noRules = `"parameters" has no rules${rules.length === 0 ? '' : ' without authorities'}`;
  const accepted = values.size === 0 ? noRules : expectedOf([...values.keys()]);
  const waves = readList(section, 'waves').map((one, index) => {
    return [one, read(one, 'path') === 'rollout.canary' ? ['canary'] : ['waves', index]] as const;
  });
  for (const [wave, path] of [[read(section, 'canary'), ['canary']] as const, ...waves]) {
    readList(wave, 'match').forEach((entry, index) => {
      const key = readText(entry, 'key');
      if (key === undefined || key === '') return;
      const at = ['rollout', ...path, 'match', index];
      const own = values.get(key);
      const value = readText(entry, 'value');
      if (own !== undefined) {
        if (value === undefined || own.anyValue || own.values.has(value)) return;
        const message = `${JSON.stringify(value)} is not one of the values of the rules for ${JSON.stringify(key)}, so no client would match: ${own.expected}`;
        context.addIssue({ code: 'custom', path: [...at, 'value'], message });
        return;
      }
      const message = keys.has(key)
        ? `the rules for ${JSON.stringify(key)} are for names of single authorities, and canaries are chosen by what holds for every name: ${accepted}`
        : `${JSON.stringify(key)} is not the key of any rule in "parameters", so no client would match: ${accepted}`;
      context.addIssue({ code: 'custom', path: [...at, 'key'], message });
    });
  }
}

/** What the rules of each key can derive. Where all of them list their values, nothing else but a default. */
function valuesByKey(rules: readonly unknown[]) {
  const byKey = Map.groupBy(rules, (rule) => readText(rule, 'key') ?? '');
  byKey.delete('');
  return new Map(
    [...byKey].map(([key, own]) => {
      const values = new Set(
        own.flatMap((rule) => [...readList(rule, 'values'), read(rule, 'default') ?? []].flat()),
      );
      const anyValue = own.some((rule) => readList(rule, 'values').length === 0);
      return [key, { values, anyValue, expected: expectedOf([...values].map(String)) }] as const;
    }),
  );
}

/** Of any length: it is said for each entry. */
const expectedOf = (words: readonly string[]): string => shorten(`expected ${anyOf(words)}`, 1000);
