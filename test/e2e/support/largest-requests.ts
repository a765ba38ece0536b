import { type as typeOf } from '../../support/in-memory-relay.ts';
import { entry, field, filled, locator, many, repeated, tiny } from './large-messages.ts';

/** What a client can send that is large, or costs much for its size. */
export interface Attack {
  readonly name: string;
  readonly protocol: 'sotw' | 'delta';
  /** One after the other, on one stream. */
  readonly requests: () => readonly Buffer[];
}

/** limits.max_request_bytes, and a little for the rest of the message. */
const largest = 4 * 2 ** 20 - 2048;
/** limits.max_subscriptions_per_stream, and a little for what else the stream asks for. */
const mostNames = 9990;
const eds = typeOf('eds');

const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => make(index));
const nodeOf = (number: number, ...content: Buffer[]): Buffer =>
  field(number, field(1, 'attacker'), ...content);
const sotw = (...fields: Buffer[]): Buffer => Buffer.concat([nodeOf(2), field(4, eds), ...fields]);
const delta = (...fields: Buffer[]): Buffer => Buffer.concat([nodeOf(1), field(2, eds), ...fields]);
const names = (number: number, count = mostNames): Buffer =>
  many(count, (index) => field(number, tiny(index)));
const xds = (id: string, query = ''): string => `xdstp://a/${eds.slice(eds.indexOf('/') + 1)}/${id}${query}`;
const globs = (number: number, count = mostNames): Buffer =>
  many(count, (index) => field(number, xds(`${index}/*`)));
const parameters = (count: number, index: number): [string, string][] =>
  times(count, (at) => [`k${at}`, String(index)]);
const query = (count: number, index: number): string =>
  `?${times(count, (at) => `k${at}=${index}`).join('&')}`;
/** An entry of google.protobuf.Struct. */
const member = (key: string, value: Buffer): Buffer => field(1, field(1, key), field(2, value));

function nested(levels: number): Buffer {
  let value = field(3, 'v');
  for (let level = 0; level < levels; level++) value = field(5, member('k', value));
  return member('env', value);
}

type Row = readonly [name: string, requests: () => readonly Buffer[]];

const sotwRows: readonly Row[] = [
  ['4 MiB of tiny names', () => [sotw(filled(largest, (index) => field(3, tiny(index))))]],
  ['4 MiB of one name', () => [sotw(repeated(largest, field(3, 'a')))]],
  ['4 MiB of the empty name', () => [sotw(repeated(largest, field(3)))]],
  ['one name of 4 MiB', () => [sotw(field(3, 'x'.repeat(largest)))]],
  [
    'names of 400 characters',
    () => [sotw(many(mostNames, (index) => field(3, tiny(index).padEnd(400, 'x'))))],
  ],
  [
    'two sets of names in turn',
    () => times(6, (turn) => sotw(many(mostNames, (index) => field(3, `${turn % 2}${index}`)))),
  ],
  [
    'locators, each with its own parameters',
    () => [sotw(many(mostNames, (index) => locator(7, tiny(index), parameters(10, index))))],
  ],
  [
    'locators of one name',
    () => [sotw(many(mostNames, (index) => locator(7, 'shop', parameters(10, index))))],
  ],
  [
    'locators with 128 parameters of 4,096 characters',
    () => [
      sotw(
        filled(largest, (index) =>
          locator(
            7,
            tiny(index),
            times(128, (at) => [`k${at}`, tiny(index).padEnd(4096, 'x')]),
          ),
        ),
      ),
    ],
  ],
  [
    'a locator with 4 MiB of tiny parameters',
    () => [
      sotw(
        field(
          7,
          field(1, 'a'),
          filled(largest - 100, (index) => entry(2, tiny(index), '')),
        ),
      ),
    ],
  ],
  [
    'wildcards, each with its own parameters',
    () => [sotw(many(mostNames, (index) => locator(7, '*', parameters(1, index))))],
  ],
  [
    'an xdstp name with 4 MiB of parameters',
    () => [sotw(field(3, xds('a', `?${times(400_000, tiny).join('&')}`)))],
  ],
  ['an xdstp name with 4 MiB of slashes', () => [sotw(field(3, xds('/'.repeat(largest - 200))))]],
  [
    '4 MiB of xdstp names with 60 parameters',
    () => [sotw(filled(largest, (index) => field(3, xds('a', query(60, index)))))],
  ],
  ['4 MiB of empty error details', () => [sotw(repeated(largest, field(6)))]],
  ['4 MiB of empty nodes', () => [sotw(repeated(largest, field(2)), nodeOf(2))]],
  ['4 MiB of type URLs', () => [sotw(repeated(largest, field(4, 'a')), field(4, eds))]],
  ['4 MiB of unknown fields', () => [sotw(repeated(largest, Buffer.of(0x08, 1)))]],
  ['4 MiB of groups inside each other', () => [sotw(repeated(largest, Buffer.of(0x7b)))]],
  [
    'a node with 4 MiB of tiny metadata',
    () => [
      Buffer.concat([
        nodeOf(
          2,
          field(
            3,
            filled(largest, (index) => member(tiny(index), field(3, 'v'))),
          ),
        ),
        field(4, eds),
      ]),
    ],
  ],
  [
    'a node with 4 MiB of nested metadata',
    () => [Buffer.concat([nodeOf(2, field(3, repeated(largest, nested(95)))), field(4, eds)])],
  ],
  [
    'a node with 4 MiB of client features',
    () => [Buffer.concat([nodeOf(2, repeated(largest, field(10, 'a'))), field(4, eds)])],
  ],
  [
    'NACKs with 4 MiB of details',
    () => times(3, () => sotw(field(3, 'shop'), field(6, repeated(largest, field(3))))),
  ],
  [
    'NACKs with 4 MiB of text',
    () => times(3, () => sotw(field(3, 'shop'), field(6, field(2, 'é'.repeat(largest / 2 - 100))))),
  ],
];

const deltaRows: readonly Row[] = [
  ['unsubscribe from all of 10,000 names', () => [delta(names(3)), delta(names(4))]],
  ['unsubscribe from 10,000 names below a wildcard', () => [delta(field(3, '*'), names(3)), delta(names(4))]],
  [
    'unsubscribe from xdstp names in another spelling',
    () => [
      delta(many(5000, (index) => field(3, xds(tiny(index), '?a=1&b=2')))),
      delta(many(5000, (index) => field(4, xds(tiny(index), '?b=2&a=1')))),
    ],
  ],
  [
    'unsubscribe from names below globs',
    () => [
      delta(
        globs(3, 5000),
        many(4900, (index) => field(3, xds(`${index}/a`))),
      ),
      delta(many(4900, (index) => field(4, xds(`${index}/a`)))),
    ],
  ],
  ['globs, and all unsubscribed', () => [delta(globs(3)), delta(globs(4))]],
  [
    'locators of one name, and all unsubscribed',
    () => [
      delta(many(mostNames, (index) => locator(8, 'shop', parameters(3, index)))),
      delta(many(mostNames, (index) => locator(9, 'shop', parameters(3, index)))),
    ],
  ],
  [
    'locators of a name that is not there',
    () => [delta(many(mostNames, (index) => locator(8, 'nothing', parameters(10, index))))],
  ],
  [
    'one name in 10,000 spellings',
    () => [delta(many(mostNames, (index) => field(3, xds('a', `?a=1#${index}`))))],
  ],
  [
    '4 MiB of unsubscribed tiny names',
    () => [
      delta(
        field(3, 'shop'),
        filled(largest, (index) => field(4, tiny(index))),
      ),
    ],
  ],
  [
    '4 MiB of tiny initial_resource_versions',
    () => [
      delta(
        field(3, '*'),
        filled(largest, (index) => entry(5, tiny(index), '')),
      ),
    ],
  ],
  [
    '90,000 initial_resource_versions of what is gone',
    () => [
      delta(
        field(3, '*'),
        many(90_000, (index) => entry(5, `service-${index}`, '1@0123456789abcdef')),
      ),
    ],
  ],
  ['4 MiB of unknown fields', () => [delta(repeated(largest, Buffer.of(0x78, 1)))]],
  [
    '10,000 names, and one more with each of 30 requests',
    () => [delta(names(3, 9900)), ...times(30, (index) => delta(field(3, `more${index}`)))],
  ],
];

const attack =
  (protocol: Attack['protocol']) =>
  ([name, requests]: Row): Attack => ({ name, protocol, requests });

export const attacks: readonly Attack[] = [
  ...sotwRows.map(attack('sotw')),
  ...deltaRows.map(attack('delta')),
];
