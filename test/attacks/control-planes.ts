/** Attacks by control planes, and by files: what they send must not disturb what others get. */
import type { Socket } from 'node:net';
import { create, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import {
  DeltaDiscoveryResponseSchema,
  type DynamicParameterConstraintsSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { eventually } from '../e2e/support/eventually.ts';
import type { ResourceFiles } from '../e2e/support/files.ts';
import { any, type as typeOf } from '../support/in-memory-relay.ts';
import type { AdsStream } from '../upstream/ads/control-plane.ts';
import type { Arena, Attack } from './support/attack.ts';
import {
  block,
  ErrorCode,
  frame,
  goaway,
  headers,
  indexed,
  integer,
  ping,
  remembered,
  reset,
  settings,
  Type,
} from './support/frames.ts';
import type { HostilePlane, RawPlane } from './support/hostile-plane.ts';

const MB = 1024 * 1024;
const rds = typeOf('rds');
type Response = Exclude<
  MessageInitShape<typeof DeltaDiscoveryResponseSchema>,
  { readonly $typeName: string }
>;
type Constraints = MessageInitShape<typeof DynamicParameterConstraintsSchema>;

/** How long an attack lasts, in milliseconds. */
const lasting = 400;
let asked = 0;

/** A client asks for a route that nobody has asked for before, so that the relay asks the control plane of routes. */
function ask(arena: Arena): void {
  arena.xds('delta').subscribe('rds', [`hostile-${asked++}`]);
}

const responseOf = (response: Response): Buffer =>
  Buffer.from(toBinary(DeltaDiscoveryResponseSchema, create(DeltaDiscoveryResponseSchema, response)));
const routes = (count: number, more: object = {}): Response => ({
  typeUrl: rds,
  nonce: 'n',
  resources: Array.from({ length: count }, (_, at) => ({
    name: `hostile-${at}`,
    version: '1',
    resource: any(rds, `hostile-${at}`, 'x'),
    ...more,
  })),
});

function deep(levels: number): Constraints {
  let inner: Constraints = {
    type: { case: 'constraint', value: { key: 'a', constraintType: { case: 'value', value: 'b' } } },
  };
  for (let level = 0; level < levels; level++) inner = { type: { case: 'notConstraints', value: inner } };
  return inner;
}

/** The control plane that has the routes. */
export function controlPlanes(plane: () => HostilePlane): readonly Attack[] {
  /** Made when it is needed: some are large. */
  const answers = (name: string, bytes: () => Buffer): Attack => ({
    name,
    async run(arena) {
      const answer = bytes();
      let left = 2;
      const say = (stream: AdsStream): void => {
        if (left-- > 0) stream.sendRaw(answer);
      };
      await plane().says(say, () => ask(arena), lasting);
    },
  });
  const does = (name: string, say: (stream: AdsStream) => void): Attack => ({
    name,
    run: (arena) => plane().says(say, () => ask(arena), lasting),
  });
  return [
    answers('noise', () => Buffer.alloc(100_000, 0xff)),
    answers('a response of 70 MB', () => Buffer.alloc(70 * MB)),
    answers('10,000 routes that nobody asked for', () => responseOf(routes(10_000))),
    answers('60 routes with constraints that are 500 levels deep', () =>
      responseOf({
        typeUrl: rds,
        nonce: 'n',
        resources: Array.from({ length: 60 }, (_, at) => ({
          resourceName: { name: `hostile-${at}`, dynamicParameterConstraints: deep(500) },
          resource: any(rds, 'x', 'x'),
        })),
      }),
    ),
    answers('a route with 10,000 aliases', () =>
      responseOf(routes(1, { aliases: Array.from({ length: 10_000 }, (_, at) => `alias-${at}`) })),
    ),
    answers('names of objects, names of 1 MB, and one name a thousand times', () =>
      responseOf({
        ...routes(0),
        resources: [
          '__proto__',
          'constructor',
          'x'.repeat(MB),
          ...Array.from({ length: 1000 }, () => 'twice'),
        ].map((name) => ({
          name,
          resource: any(rds, name.slice(0, 10), 'x'),
        })),
      }),
    ),
    answers('40,000 removals', () =>
      responseOf({
        ...routes(0),
        removedResources: Array.from({ length: 40_000 }, (_, at) => `hostile-${at}`),
      }),
    ),
    answers('errors about 5,000 resources', () =>
      responseOf({
        ...routes(0),
        resourceErrors: Array.from({ length: 5000 }, (_, at) => ({
          resourceName: { name: `hostile-${at}` },
          errorDetail: { code: 5, message: 'x'.repeat(50) },
        })),
      }),
    ),
    answers('a nonce, a version and an identifier of 1 MB each', () => {
      const long = 'x'.repeat(MB);
      return responseOf({
        ...routes(1),
        nonce: long,
        systemVersionInfo: long,
        controlPlane: { identifier: long },
      });
    }),
    answers('a type that was not asked for', () => responseOf({ ...routes(10), typeUrl: typeOf('cds') })),
    answers('times to live that are negative, and that are over at once', () =>
      responseOf({
        ...routes(500, { ttl: { seconds: -5n, nanos: 0 } }),
        resources: [...(routes(500, { ttl: { seconds: 0n, nanos: 1 } }).resources ?? [])],
      }),
    ),
    answers('times to live that no duration can be', () =>
      responseOf(routes(500, { ttl: { seconds: 2n ** 63n - 1n, nanos: 2 ** 31 - 1 } })),
    ),
    does('each stream is ended as soon as it asks, with a message of 4 KB', (stream) =>
      stream.fail(13, `no ${'x'.repeat(4000)}`),
    ),
    does('each stream is ended as soon as it asks, as if all were well', (stream) => stream.end()),
    does('it never answers', () => {}),
    does('responses without end', (stream) => {
      for (let each = 0; each < 20; each++)
        stream.sendRaw(responseOf(routes(20, { version: String(Math.random()) })));
    }),
  ];
}

/** A control plane of which every byte is wrong. */
export function rawPlanes(plane: () => RawPlane): readonly Attack[] {
  const does = (name: string, attack: (socket: Socket) => void): Attack => ({
    name,
    run: () => plane().does(attack, lasting),
  });
  const again = (portion: Uint8Array, times: number) => (socket: Socket) => {
    socket.write(Buffer.concat(Array.from({ length: times }, () => portion)));
  };
  const ok = block([
    [':status', '200'],
    ['content-type', 'application/grpc'],
  ]);
  return [
    does('HTTP/1.1', (socket) => socket.write('HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n')),
    does('noise', (socket) => socket.write(Buffer.alloc(100_000, 0xaa))),
    does('connections that end at once', (socket) => socket.destroy()),
    does('PING and SETTINGS without end', again(Buffer.concat([ping(), settings([1, 4096])]), 20_000)),
    does('GOAWAY on every connection', again(goaway(0, ErrorCode.ENHANCE_YOUR_CALM), 1)),
    does(
      'streams that are reset before they are opened',
      again(Buffer.concat([1, 3, 5, 7].map((id) => reset(id))), 100),
    ),
    does(
      'an HPACK bomb as answer',
      again(
        headers(
          1,
          Buffer.concat([
            ok,
            remembered('x', 'y'.repeat(4000)),
            ...Array.from({ length: 5000 }, () => indexed(62)),
          ]),
        ),
        1,
      ),
    ),
    does(
      'headers without end',
      again(
        Buffer.concat([headers(1, ok, 0), frame(Type.CONTINUATION, 0, 1, block([['x', 'y'.repeat(8000)]]))]),
        500,
      ),
    ),
    does('header blocks that cannot be read', again(headers(1, integer(0x80, 7, 100_000)), 1)),
    does(
      'PUSH_PROMISE',
      again(frame(Type.PUSH_PROMISE, 4, 1, Buffer.concat([Buffer.of(0, 0, 0, 2), ok])), 10),
    ),
  ];
}

/** Files that somebody else can write. */
export function hostileFiles(files: () => ResourceFiles): readonly Attack[] {
  const file = (name: string, path: string, content: () => string): Attack => ({
    name,
    async run(arena) {
      const marker = `marker-${asked++}`;
      const client = arena.xds('delta');
      client.subscribe('ecds', [marker]);
      files().writeText(path, content());
      try {
        // The files beside it go on.
        files().write('ecds', new Map([[marker, 'x']]));
        await eventually(() => {
          if (!client.of('ecds').some(({ resources }) => resources === 1))
            throw new Error('no update of another file');
        });
      } finally {
        files().remove(path);
      }
    },
  });
  return [
    file('an alias bomb in YAML: ten lines that become 10^9 entries', 'bomb.yaml', () => {
      const lines = Array.from(
        { length: 9 },
        (_, at) => `a${at + 1}: &a${at + 1} [${Array.from({ length: 10 }, () => `*a${at}`).join(',')}]`,
      );
      return ['a0: &a0 [x]', ...lines, 'resources: *a9', ''].join('\n');
    }),
    file(
      'YAML that is 5,000 levels deep',
      'deep.yaml',
      () => `resources: ${'['.repeat(5000)}${']'.repeat(5000)}`,
    ),
    file(
      'JSON that is 100,000 levels deep',
      'deep.json',
      () => `{"resources":${'['.repeat(100_000)}${']'.repeat(100_000)}}`,
    ),
    file(
      'keys of objects in JSON',
      'proto.json',
      () => '{"__proto__":{"resources":[]},"constructor":{},"resources":[{"__proto__":1}]}',
    ),
    file('noise as protobuf', 'noise.pb', () => '\xff'.repeat(100_000)),
  ];
}
