import { z } from 'zod';
import { anyOf } from '../model/suggest.ts';
import { gatedByDefault, knownTypes } from '../model/types.ts';
import {
  count,
  evenIfWrong,
  inCode,
  name,
  positiveDuration,
  principal,
  read,
  readList,
  readText,
  resourceType,
} from './schema-parts.ts';

/** Without `percent` and `match`. */
const defaultPercent = 5;

const defaultTypes = knownTypes.filter(({ url }) => gatedByDefault.has(url)).map(({ short }) => short);

// biome-ignore format: a table, one key a line
const canary = z
  .strictObject({
    percent: z.number().min(0.01).max(100).optional().describe(`Percentage of the clients, chosen by a hash of the node id; default: ${defaultPercent} without "match", none with it`),
    match: z.array(z.strictObject({ key: name().describe('A key of "parameters"'), value: z.string().describe('The value that makes a client a canary') })).prefault([]).describe('Clients for which the rules derive one of these parameters'),
  })
  .transform(({ percent, match }) => ({
    percent: percent ?? (match.length === 0 ? defaultPercent : 0),
    match,
  }));

// biome-ignore format: a table, one key a line
export const rollout = z
  .strictObject({
    canary: canary.prefault({}).describe('Who gets a change first: clients of either kind, and at least one client of each class that subscribes to what changed'),
    canary_principals: z.array(principal()).prefault([]).describe('Clients that may be canaries, by their certificates, as in xds.authorization; this needs xds.tls.ca. Empty: every client'),
    bake: positiveDuration().prefault('30s').describe('How long the canaries must stay connected after they have accepted a change; another change restarts it'),
    max_wait: positiveDuration().prefault('10m').describe('How long to wait for a verdict; then on_timeout applies. Another change does not restart it'),
    on_timeout: z.enum(['HOLD', 'PROCEED']).default('HOLD').describe('HOLD: the others keep what they have. PROCEED: everybody gets the change, unless a canary rejects it'),
    max_disconnects: z.number().min(0).max(100).default(20).describe("Percentage of the canaries' streams that may end within the bake"),
    types: z.array(resourceType()).min(1).prefault(defaultTypes).describe('These types go to canaries first; others go straight to everybody'),
    mode: z.enum(['AUTOMATIC', 'MANUAL']).default('AUTOMATIC').describe('MANUAL: a change waits for `release`, whatever the canaries say'),
  })
  .superRefine((entry, context) => {
    const [bake, maxWait] = [read(entry, 'bake'), read(entry, 'max_wait')]; // milliseconds if they are durations
    if (typeof bake !== 'number' || typeof maxWait !== 'number' || bake <= maxWait) return;
    const message = `a bake of ${bake / 1000}s is longer than max_wait (${maxWait / 1000}s): every change would time out`;
    context.addIssue({ code: 'custom', path: ['bake'], message });
  }, evenIfWrong)
  .transform(inCode);

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
  const isVerified = read(read(read(file, 'xds'), 'tls'), 'ca') !== undefined;
  if (readList(section, 'canary_principals').length > 0 && !isVerified) {
    const message =
      'without xds.tls.ca no client is verified, so nobody would be a canary: set it, or leave this list empty';
    context.addIssue({ code: 'custom', path: ['rollout', 'canary_principals'], message });
  }
  const keys = readList(file, 'parameters').map((rule) => readText(rule, 'key'));
  const known = [...new Set(keys)].filter((key) => key !== undefined);
  readList(read(section, 'canary'), 'match').forEach((entry, index) => {
    const key = readText(entry, 'key');
    if (key === undefined || key === '') return;
    if (known.includes(key)) {
      checkValue(file, key, readText(entry, 'value'), index, context);
      return;
    }
    const accepted = known.length === 0 ? '"parameters" has no rules' : `expected ${anyOf(known)}`;
    const message = `${JSON.stringify(key)} is not the key of any rule in "parameters", so no client would match: ${accepted}`;
    context.addIssue({ code: 'custom', path: ['rollout', 'canary', 'match', index, 'key'], message });
  });
}

/** Where all rules of a key list their values, nothing derives another one but a default. */
function checkValue(
  file: unknown,
  key: string,
  value: string | undefined,
  index: number,
  context: z.core.$RefinementCtx,
): void {
  const rules = readList(file, 'parameters').filter((rule) => readText(rule, 'key') === key);
  const derived = rules.map((rule) => ({
    values: readList(rule, 'values'),
    otherwise: readText(rule, 'default'),
  }));
  if (value === undefined || derived.some(({ values }) => values.length === 0 || values.includes(value)))
    return;
  if (derived.some(({ otherwise }) => otherwise === value)) return;
  const accepted = new Set(derived.flatMap(({ values, otherwise }) => [...values, otherwise ?? []].flat()));
  const message = `${JSON.stringify(value)} is not one of the values of the rules for ${JSON.stringify(key)}, so no client would match: expected ${anyOf([...accepted].map(String))}`;
  context.addIssue({ code: 'custom', path: ['rollout', 'canary', 'match', index, 'value'], message });
}
