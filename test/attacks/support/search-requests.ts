/** What the searching attacker sends, and the well-formed requests that it begins with. */
import { AdminService } from '../../../src/gen/distributary/admin/v1/admin_pb.ts';
import { ADS_SERVICE, knownTypes } from '../../../src/model/types.ts';
import { frameOf } from '../../../src/wire/grpc-frames.ts';
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

/** What is sent where, for --help. */
export const covered = `It sends valid and mangled requests, over connections of their own:

  xds      gRPC: SotW and delta streams of ADS and of each type, FetchX, CSDS, health, reflection, load reports
  rest     polls of each type, and of CSDS
  admin    pages, probes and the event stream by GET; each RPC and CSDS as JSON, and RPCs as protobuf, by POST
  metrics  metrics and probes by GET
  each     HTTP/2 frames, HTTP/1.1 that is raw, and the first bytes of a connection: parts of a preface, of a
           ClientHello, noise, nothing

A plain relay takes turns with one whose xds, rest and admin listeners have TLS with client certificates (the
metrics listener has no TLS). First bytes go there without TLS; everything else with a certificate, in TLS.`;

/** One request. Its bytes are the messages of a call, the body of a POST, or what a connection begins with. */
export interface Step {
  /** A stream stays open after its messages, a unary call ends. `frames` go through TLS where the listener has it, `first` bytes do not. */
  readonly kind: 'stream' | 'unary' | 'post' | 'get' | 'frames' | 'first';
  readonly door: Door;
  /** Of a call or request. */
  readonly path: string;
  /** Content-Type of a POST. */
  readonly type: string;
  readonly bytes: Buffer;
  /** How many of these are sent at once; what a connection begins with comes once. */
  readonly times: number;
}

/** Longer requests are cut: the largest that the relay takes are tried by largest-messages.more.ts. */
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

const JSON_TYPE = 'application/json';
const none = Buffer.alloc(0);
const one = { path: '', type: '', bytes: none, times: 1 };
const stream = (path: string, bytes: Buffer): Step => ({ ...one, kind: 'stream', door: 'xds', path, bytes });
const unary = (path: string, bytes: Buffer): Step => ({ ...stream(path, bytes), kind: 'unary' });
const post = (door: Door, path: string, body: string | Buffer, type = JSON_TYPE): Step => ({
  ...one,
  kind: 'post',
  door,
  path,
  type,
  bytes: Buffer.from(body),
});
const get = (door: Door, path: string): Step => ({ ...one, kind: 'get', door, path });
const frames = (door: Door, ...bytes: Buffer[]): Step => ({
  ...one,
  kind: 'frames',
  door,
  bytes: Buffer.concat(bytes),
});
const first = (door: Door, bytes: Buffer): Step => ({ ...one, kind: 'first', door, bytes });

const matcher = field(1, field(1, field(2, 'x{1,50}')));

const messages: readonly Step[] = [
  stream(ADS, sotw(eds, field(3, 'shop'))),
  stream(ADS, sotw(cds)),
  stream(
    ADS,
    sotw(
      eds,
      many(50, (index) => field(3, tiny(index))),
    ),
  ),
  stream(
    ADS,
    sotw(
      eds,
      many(20, (index) => locator(7, tiny(index), [['env', tiny(index)]])),
    ),
  ),
  stream(DELTA, delta(cds, field(3, '*'), field(3, 'invented'))),
  stream(
    DELTA,
    delta(
      eds,
      many(50, (index) => field(3, xdstp(index))),
    ),
  ),
  stream(
    DELTA,
    delta(
      eds,
      many(20, (index) => locator(8, '*', [['env', tiny(index)]])),
    ),
  ),
  stream(
    DELTA,
    delta(
      eds,
      field(3, '*'),
      many(50, (index) => entry(5, tiny(index), 'v')),
    ),
  ),
  stream(DELTA, delta(eds, field(3, 'a'), field(4, 'a'), field(6, 'nonce'), field(7, field(2, 'no')))),
  unary(
    `${CSDS}/FetchClientStatus`,
    many(4, () => matcher),
  ),
  stream(`${CSDS}/StreamClientStatus`, none),
  unary('/grpc.health.v1.Health/Check', none),
  unary('/grpc.health.v1.Health/Watch', field(1, 'x')),
  unary('/grpc.health.v1.Health/List', none),
  ...['v1', 'v1alpha'].map((version) =>
    stream(`/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`, field(4, ADS_SERVICE)),
  ),
  stream('/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats', nodeOf(1)),
  ...knownTypes.flatMap(({ service, url, streamMethod, deltaMethod, fetchMethod }) => {
    const message = sotw(url, field(3, '*'), field(3, 'z1'));
    return [
      ...(fetchMethod === undefined ? [] : [unary(`/${service}/${fetchMethod}`, message)]),
      ...(streamMethod === undefined ? [] : [stream(`/${service}/${streamMethod}`, message)]),
      ...(deltaMethod === undefined ? [] : [stream(`/${service}/${deltaMethod}`, delta(url, field(3, '*')))]),
    ];
  }),
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

const question = '{"type":"cds","name":"shop"}';
const operators: readonly Step[] = [
  ...['/', '/ready', '/metrics', '/config_dump', '/healthz', '/events', '/runbooks/limits'].map((path) =>
    get('admin', path),
  ),
  ...['/ready', '/metrics', '/healthz'].map((path) => get('metrics', path)),
  ...AdminService.methods.flatMap(({ name, methodKind }) => {
    const path = `${RPC}/${name}`;
    // A stream's messages have a prefix, as those of gRPC.
    return methodKind === 'unary'
      ? [post('admin', path, question), post('admin', path, field(1, 'cds'), 'application/proto')]
      : [post('admin', path, frameOf(Buffer.from(question)), 'application/connect+json')];
  }),
  post('admin', `${CSDS}/FetchClientStatus`, '{}'),
];

const openings = many(20, (at) => headers(2 * at + 1, block(callFields(ADS))));
/** The shortest that TLS takes: version 1.2, one suite. */
const clientHello = Buffer.concat([
  Buffer.of(0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3),
  Buffer.alloc(32, 7),
  Buffer.of(0, 0, 2, 0xc0, 0x2f, 1, 0),
]);
const raw: readonly Step[] = doors.flatMap((door) => [
  frames(door, PREFACE, settings(), openings),
  frames(door, PREFACE, settings(), headers(1, block(callFields(ADS))), reset(1), ping(), windowUpdate(0, 1)),
  frames(door, PREFACE, settings([4, 0]), priority(3, 1)),
  frames(door, Buffer.from('POST /v3/discovery:clusters HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}')),
  ...[none, PREFACE.subarray(0, 1), PREFACE.subarray(0, 16), clientHello, clientHello.subarray(0, 11)].map(
    (bytes) => first(door, Buffer.from(bytes)),
  ),
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
  const isRequest = step.kind !== 'frames' && step.kind !== 'first';
  if (isRequest && random.chance(0.25)) {
    const times = random.chance(0.5) ? step.times * 2 : 1 + random.below(mostTimes);
    return { ...step, times: Math.min(mostTimes, times) };
  }
  const alike = seeds.filter(({ kind }) => kind === step.kind);
  if (random.chance(0.1)) {
    const { path, type } = random.pick(alike);
    return { ...step, path, type };
  }
  const others = alike.map(({ bytes }) => bytes);
  return { ...step, bytes: mutate([step.bytes, ...others], random).subarray(0, longest) };
}
