import { z } from 'zod';
import { fail, ok } from '../model/result.ts';
import { notifiedEvents } from '../model/rollout.ts';
import {
  certificateWithKey,
  count,
  evenIfWrong,
  identityOf,
  inCode,
  name,
  ownCertificate,
  parsed,
  positiveDuration,
  read,
  readList,
  readText,
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
const tls = z
  .strictObject({
    ca: name().optional().describe("PEM file of the authorities that the server's certificate is verified against; default: those that come with Node"),
    ...ownCertificate,
    server_name: name().optional().describe("Name to ask for (SNI) and to verify; default: the URL's host"),
  })
  .superRefine(certificateWithKey, evenIfWrong)
  .transform((given) => ({ ca: given.ca, identity: identityOf(given), serverName: given.server_name }));

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
export const notify = z
  .array(
    z
      .strictObject({
        ...peer,
        hmac_file: name().optional().describe('A file with a key. Each request then has x-distributary-timestamp, and x-distributary-signature: sha256= and the HMAC of timestamp, a dot and body. Read for each request'),
        events: z.array(z.enum(notifiedEvents)).min(1).prefault([...notifiedEvents]).describe('What is told: a change is HELD, was DISCARDED, or was RELEASED to everybody'),
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
    timeout: positiveDuration().prefault('5s').describe('An answer that has not arrived whole within this time is UNKNOWN'),
    failures: count().max(60).default(2).describe('BAD so many times in a row, the change is bad'),
    prometheus: prometheus.optional().describe('An instant query: one value within min and max is GOOD, outside of them BAD, all else UNKNOWN'),
    webhook: webhook.optional().describe('A POST with JSON that says what waits: 2xx is GOOD, 4xx and 5xx are BAD, all else is UNKNOWN'),
  })
  .superRefine((entry, context) => {
    const kinds = ['prometheus', 'webhook'].filter((kind) => read(entry, kind) !== undefined);
    if (kinds.length === 1) return;
    const has = kinds.length === 0 ? 'neither' : 'both';
    context.addIssue(`expected either prometheus or webhook: this check has ${has}`);
  }, evenIfWrong)
  .transform(inCode);

export const checks = z
  .array(check)
  .max(32)
  .prefault([])
  .superRefine((list, context) => {
    const names = readList({ list }, 'list').map((entry) => readText(entry, 'name'));
    names.forEach((own, index) => {
      const first = names.indexOf(own);
      if (own === undefined || first === index) return;
      const message = `${JSON.stringify(own)} is already the name of checks[${first}]: each check needs its own`;
      context.addIssue({ code: 'custom', path: [index, 'name'], message });
    });
  }, evenIfWrong);
