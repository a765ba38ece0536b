import { create, fromBinary, fromJsonString, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { createContextValues } from '@connectrpc/connect';
import type { UniversalServerResponse } from '@connectrpc/connect/protocol';
import { expect } from 'chai';
import { answered, Listed, type Long, maxAnswerBytes, takerKey } from '../../src/admin/answers.ts';
import {
  ClientSchema,
  ListClientsResponseSchema,
  StatusResponseSchema,
} from '../../src/gen/distributary/admin/v1/admin_pb.ts';
import { systemClock } from '../../src/model/clock.ts';
import { TimeSlices } from '../../src/model/time-slices.ts';

type Client = MessageInitShape<typeof ClientSchema>;

const types = [
  'application/json',
  'application/proto',
  'application/grpc-web+proto',
  'application/grpc-web+json',
];
const slices = new TimeSlices(systemClock);

/** As a client of the admin listener reads it, and how many bytes that had. */
async function read(answer: Long<typeof ListClientsResponseSchema>, type: string) {
  const taker: Pick<UniversalServerResponse, 'body'> = {};
  const context = {
    values: createContextValues().set(takerKey, taker),
    requestHeader: new Headers({ 'content-type': type }),
  };
  const message = await answered(ListClientsResponseSchema, answer, context, slices);
  if (taker.body === undefined) {
    // connect-node writes it.
    const sent = toBinary(ListClientsResponseSchema, message);
    return { message: fromBinary(ListClientsResponseSchema, sent), bytes: sent.length };
  }
  const chunks: Uint8Array[] = [];
  for await (const chunk of taker.body) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  return {
    bytes: body.length,
    message: type.includes('json')
      ? fromJsonString(ListClientsResponseSchema, body.toString())
      : fromBinary(ListClientsResponseSchema, body),
  };
}

const listed = (rows: Iterable<Client>) =>
  new Listed(
    { total: 7 },
    { field: 'clients', rows: Iterator.from(rows).map((row) => create(ClientSchema, row)) },
    (written, more) => ({ nextOffset: more ? written : 0 }),
  );

function* endless(row: Client): Iterable<Client> {
  for (;;) yield row;
}

for (const type of types) {
  describe(`answers of the admin listener as ${type}`, () => {
    it('have all their rows and fields', async () => {
      const rows = [{ id: '1', node: { id: 'a', cluster: '' } }, { id: '2' }];
      const { message } = await read(listed(rows), type);
      expect(message.clients.map(({ id, node }) => [id, node?.id])).to.deep.equal([
        ['1', 'a'],
        ['2', undefined],
      ]);
      expect([message.total, message.nextOffset, message.truncated]).to.deep.equal([7, 0, false]);
      expect((await read({ clients: rows, total: 9 }, type)).message.clients).to.have.lengthOf(2);
      expect((await read(listed([]), type)).message.clients).to.deep.equal([]);
    });

    it('end at 8 MiB, and say where to go on', async () => {
      const { message, bytes } = await read(listed(endless({ id: 'x'.repeat(100_000) })), type);
      expect(bytes).to.be.at.most(maxAnswerBytes);
      expect(message.nextOffset).to.equal(message.clients.length).and.to.equal(83);
    });

    it('have room for what comes after a list that is full to its last byte', async () => {
      const large = Array.from({ length: 83 }, () => ({ id: 'x'.repeat(100_000) }));
      const rows = [large, endless({ id: 'x' })].values().flatMap((some) => some);
      expect((await read(listed(rows), type)).bytes).to.be.within(maxAnswerBytes - 2 ** 16, maxAnswerBytes);
    });

    it('have a row that is larger without its lists, and say so', async () => {
      const many = Array.from({ length: 1000 }, () => ({ type: 'x'.repeat(20_000) }));
      const { message } = await read(listed([{ id: '1', types: many }]), type);
      expect(message.clients.map(({ id, types }) => [id, types])).to.deep.equal([['1', []]]);
      expect([message.truncated, message.nextOffset]).to.deep.equal([true, 0]);
    });

    it('have no more of a list that has no pages, and say so', async () => {
      const clients = Array.from({ length: 100 }, () => ({ id: 'x'.repeat(100_000) }));
      const { message } = await read({ clients }, type);
      expect(message.clients).to.have.lengthOf(83);
      expect(message.truncated).to.equal(true);
    });
  });
}

describe('an answer of the admin listener', () => {
  it('that is too large beside its lists is RESOURCE_EXHAUSTED', async () => {
    const context = { values: createContextValues(), requestHeader: new Headers() };
    const answer = { reason: 'x'.repeat(maxAnswerBytes) };
    const refused = await answered(StatusResponseSchema, answer, context, slices).catch(String);
    expect(refused).to.match(
      /resource_exhausted.*without its lists the answer has .*: the maximum is 8323072/,
    );
  });
});
