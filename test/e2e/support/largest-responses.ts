import { type as typeOf } from '../../support/in-memory-relay.ts';
import { field, many, repeated, tiny } from './large-messages.ts';

/** A large delta response of a control plane: its fields but for version, type and nonce. */
interface LargeResponse {
  readonly name: string;
  readonly fields: () => Buffer;
}

const cds = typeOf('cds');
const count = 40_000;
const variants = 10_000;

const is = (key: string, value: string): Buffer => field(1, field(1, key), field(2, value));
const not = (of: Buffer): Buffer => field(4, of);
const body = (name: string, content: string): Buffer =>
  field(2, field(1, cds), field(2, field(1, name), field(1023, content)));
const service = (index: number): string => `service-${index}`;
const resources = (content: string): Buffer =>
  many(count, (index) => field(2, field(1, '1'), body(service(index), content), field(3, service(index))));
const variantsOf = (name: string, constraints: (index: number) => Buffer): Buffer =>
  many(variants, (index) =>
    field(2, field(1, '1'), body(name, tiny(index)), field(8, field(1, name), field(2, constraints(index)))),
  );
const without = (name: string, constraints: (index: number) => Buffer): Buffer =>
  many(variants, (index) => field(8, field(1, name), field(2, constraints(index))));
const errors = (code: number): Buffer =>
  many(count, (index) =>
    field(9, field(1, field(1, service(index))), field(2, Buffer.of(8, code), field(2, 'no'))),
  );
const aliased = (first: number): Buffer =>
  field(
    2,
    field(1, '1'),
    body('aliased', 'x'),
    field(3, 'aliased'),
    many(10_000, (index) => field(4, `alias-${first + index}`)),
  );
/** Variants that all have the same aliases. */
const sharing = (content: string): Buffer =>
  many(2000, (index) =>
    field(
      2,
      field(1, '1'),
      body('sharing', `${content}${index}`),
      many(5, (alias) => field(4, `shared-${alias}`)),
      field(8, field(1, 'sharing'), field(2, is('k', tiny(index)))),
    ),
  );

const byValue = (index: number): Buffer => is('k', tiny(index));
const byKey = (index: number): Buffer => is(tiny(index), 'v');
const byOthers = (index: number): Buffer => not(is('k', tiny(index)));

/** In this order: each stands on what those before have left. */
export const responses: readonly LargeResponse[] = [
  { name: '40,000 resources', fields: () => resources('x') },
  { name: '40,000 changes', fields: () => resources('y') },
  { name: '40,000 resource_errors', fields: () => errors(13) },
  { name: '40,000 removals', fields: () => many(count, (index) => field(6, service(index))) },
  { name: '40,000 removals of what is not there', fields: () => errors(5) },
  { name: '10,000 variants of a name', fields: () => variantsOf('one', byValue) },
  { name: 'their removal', fields: () => without('one', byValue) },
  { name: '10,000 variants of a name by 10,000 keys', fields: () => variantsOf('two', byKey) },
  {
    name: '10,000 variants of a name that most parameters match',
    fields: () => variantsOf('three', byOthers),
  },
  { name: 'their removal', fields: () => without('three', byOthers) },
  {
    name: 'an OR of 100,000',
    fields: () =>
      variantsOfOne(
        field(
          2,
          many(100_000, (index) => field(1, byValue(index))),
        ),
      ),
  },
  { name: 'a resource with 10,000 aliases', fields: () => aliased(0) },
  { name: 'half of them others', fields: () => aliased(5000) },
  { name: '2,000 variants with the same aliases', fields: () => sharing('a') },
  { name: 'all of them changed', fields: () => sharing('b') },
];

function variantsOfOne(constraints: Buffer): Buffer {
  return field(2, field(1, '1'), body('wide', 'x'), field(8, field(1, 'wide'), field(2, constraints)));
}

const room = 20_000_000;

/** Small entries without end. Each is refused before anything is made of it. */
export const refusedResponses = [
  ...[2, 9].map((of) => ({
    name: `10,000,000 empty entries of field ${of}`,
    entries: () => repeated(room, field(of)),
    reason: 'a response of 10000000 entries: at most 1000000 are accepted',
  })),
  {
    name: 'a resource with 10,000,000 empty aliases',
    entries: () => field(2, body('aliased', 'x'), field(3, 'aliased'), repeated(room, field(4))),
    reason: 'a resource has more than 1000000 aliases',
  },
];
