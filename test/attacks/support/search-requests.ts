/** What the searching attacker sends, and the well-formed requests that it begins with. */
import { ADS_SERVICE, knownTypes } from '../../../src/model/types.ts';
import { entry, field, locator, many, tiny } from '../../e2e/support/large-messages.ts';
import { mutate } from '../../fuzz/mutation.ts';
import { type as typeOf } from '../../support/in-memory-relay.ts';
import type { Random } from '../../support/random.ts';
import {
  ADS,
  block,
  callFields,
  headers,
  PREFACE,
  ping,
  priority,
  reset,
  settings,
  windowUpdate,
} from './frames.ts';
import { restPaths } from './rest-calls.ts';

const doors = ['xds', 'rest', 'admin', 'metrics'] as const;
type Door = (typeof doors)[number];

/** One request. Its bytes are the messages of a call, the body of a POST, or the frames after a preface. */
export interface Step {
  readonly kind: 'call' | 'post' | 'get' | 'frames';
  readonly door: Door;
  /** Of `frames`: none. */
  readonly path: string;
  readonly bytes: Buffer;
  /** How many of these are sent at once; frames once, as a preface comes once. */
  readonly times: number;
}

/** Longer requests are cut: the largest that the relay takes are tried by largest-messages.test.ts. */
const longest = 128 * 1024;
const mostTimes = 64;
const mostSteps = 4;

const eds = typeOf('eds');
const cds = typeOf('cds');
const DELTA = `/${ADS_SERVICE}/DeltaAggregatedResources`;
const CSDS = '/envoy.service.status.v3.ClientStatusDiscoveryService';
const RPC = '/distributary.admin.v1.AdminService';
const nodeOf = (number: number): Buffer =>
  field(
    number,
    field(1, 'attacker'),
    field(2, 'c'),
    field(3, field(1, field(1, 'env'), field(2, field(3, 'prod')))),
  );
const sotw = (type: string, ...rest: Buffer[]): Buffer => Buffer.concat([nodeOf(2), field(4, type), ...rest]);
const delta = (type: string, ...rest: Buffer[]): Buffer =>
  Buffer.concat([nodeOf(1), field(2, type), ...rest]);
const xdstp = (index: number): string =>
  `xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/${index}/*?a=${index}&b=2`;

const call = (path: string, bytes: Buffer): Step => ({ kind: 'call', door: 'xds', path, bytes, times: 1 });
const post = (door: Door, path: string, body: string): Step => ({
  kind: 'post',
  door,
  path,
  bytes: Buffer.from(body),
  times: 1,
});
const get = (door: Door, path: string): Step => ({
  kind: 'get',
  door,
  path,
  bytes: Buffer.alloc(0),
  times: 1,
});
const frames = (door: Door, ...bytes: Buffer[]): Step => ({
  kind: 'frames',
  door,
  path: '',
  bytes: Buffer.concat(bytes),
  times: 1,
});

const matcher = field(1, field(1, field(2, 'x{1,50}')));

const messages: readonly Step[] = [
  call(ADS, sotw(eds, field(3, 'shop'))),
  call(ADS, sotw(cds)),
  call(
    ADS,
    sotw(
      eds,
      many(50, (index) => field(3, tiny(index))),
    ),
  ),
  call(
    ADS,
    sotw(
      eds,
      many(20, (index) => locator(7, tiny(index), [['env', tiny(index)]])),
    ),
  ),
  call(DELTA, delta(cds, field(3, '*'), field(3, 'invented'))),
  call(
    DELTA,
    delta(
      eds,
      many(50, (index) => field(3, xdstp(index))),
    ),
  ),
  call(
    DELTA,
    delta(
      eds,
      many(20, (index) => locator(8, '*', [['env', tiny(index)]])),
    ),
  ),
  call(
    DELTA,
    delta(
      eds,
      field(3, '*'),
      many(50, (index) => entry(5, tiny(index), 'v')),
    ),
  ),
  call(DELTA, delta(eds, field(3, 'a'), field(4, 'a'), field(6, 'nonce'), field(7, field(2, 'no')))),
  call(
    `${CSDS}/FetchClientStatus`,
    many(4, () => matcher),
  ),
  call(`${CSDS}/StreamClientStatus`, Buffer.alloc(0)),
  call('/grpc.health.v1.Health/Check', Buffer.alloc(0)),
  call('/grpc.health.v1.Health/Watch', field(1, 'x')),
  call('/grpc.health.v1.Health/List', Buffer.alloc(0)),
  call('/grpc.reflection.v1.ServerReflection/ServerReflectionInfo', field(4, ADS_SERVICE)),
  call('/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats', nodeOf(1)),
  ...knownTypes.flatMap(({ fetchMethod, url, service }) =>
    fetchMethod === undefined
      ? []
      : [call(`/${service}/${fetchMethod}`, sotw(url, field(3, '*'), field(3, 'z1')))],
  ),
];

const poll = '{"node":{"id":"a","metadata":{"env":"prod","a":[{},{}]}},"resource_names":["*","z1"]}';
const polls: readonly Step[] = [
  ...restPaths.map((path) => post('rest', path, poll)),
  post(
    'rest',
    '/v3/discovery:client_status',
    '{"node_matchers":[{"node_id":{"safe_regex":{"regex":"x{1,50}"}}}]}',
  ),
];

const operators: readonly Step[] = [
  ...['/', '/ready', '/metrics', '/config_dump', '/healthz'].map((path) => get('admin', path)),
  ...['/ready', '/metrics', '/healthz'].map((path) => get('metrics', path)),
  ...['Status', 'ListClients', 'History', 'Diff', 'Explain', 'Freeze', 'Get'].map((name) =>
    post('admin', `${RPC}/${name}`, '{"type":"cds","name":"shop"}'),
  ),
];

const openings = many(20, (at) => headers(2 * at + 1, block(callFields(ADS))));
const raw: readonly Step[] = doors.flatMap((door) => [
  frames(door, PREFACE, settings(), openings),
  frames(door, PREFACE, settings(), headers(1, block(callFields(ADS))), reset(1), ping(), windowUpdate(0, 1)),
  frames(door, PREFACE, settings([4, 0]), priority(3, 1)),
  frames(door, Buffer.from('POST /v3/discovery:clusters HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}')),
  frames(door, Buffer.of(0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3)),
]);

export const seeds: readonly Step[] = [...messages, ...polls, ...operators, ...raw];

/** A sequence that comes from one of the corpus, or from the seeds. */
export function nextSequence(corpus: readonly (readonly Step[])[], random: Random): readonly Step[] {
  const from = corpus.length > 0 && random.chance(0.8) ? random.pick(corpus) : [random.pick(seeds)];
  const others = random.chance(0.2) ? [random.pick(seeds)] : [];
  return [...from, ...others]
    .slice(-mostSteps)
    .map((step) => (random.chance(0.7) ? changed(step, random) : step));
}

function changed(step: Step, random: Random): Step {
  if (step.kind !== 'frames' && random.chance(0.25)) {
    const times = random.chance(0.5) ? step.times * 2 : 1 + random.below(mostTimes);
    return { ...step, times: Math.min(mostTimes, times) };
  }
  const alike = seeds.filter(({ kind }) => kind === step.kind);
  if (random.chance(0.1)) return { ...step, path: random.pick(alike).path };
  const others = alike.map(({ bytes }) => bytes);
  return { ...step, bytes: mutate([step.bytes, ...others], random).subarray(0, longest) };
}
