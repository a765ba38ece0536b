import { expect } from 'chai';
import { Taps } from '../../src/downstream/taps.ts';
import { serial, typeUrl } from '../../src/model/brand.ts';
import type { Response } from '../../src/model/subscription.ts';

const type = typeUrl('type.googleapis.com/envoy.config.cluster.v3.Cluster');
const response: Response = {
  serial: serial(1),
  nonce: '1',
  bytes: Buffer.alloc(10),
  version: 'v1',
  resources: 1,
  changed: [],
  removed: [],
  receivedAt: undefined,
};
const stream = (id: string) => ({
  id,
  client: { nodeId: `node-${id}` },
});

describe('taps', () => {
  it('a reader that does not read costs 2,000 messages of memory, and hears how many it has lost', async () => {
    const taps = new Taps({ now: () => 0 });
    const tap = taps.open({ client: undefined, type: undefined });
    const streams = Array.from({ length: 1000 }, (_, index) => stream(String(index)));
    for (let update = 0; update < 10; update++) for (const one of streams) taps.sent(one, type, response);
    const taken = (await tap.next()) ?? [];
    expect(taken).to.have.length(2001);
    expect(taken.at(-1)).to.deep.equal({ event: 'LOST', lost: 8000 });
    taps.sent(stream('7'), type, response);
    expect(await tap.next(), 'it goes on').to.have.length(1);
  });

  it('reads a response once, whoever gets it', async () => {
    const taps = new Taps({ now: () => 0 });
    const tap = taps.open({ client: undefined, type: undefined });
    taps.sent(stream('1'), type, response);
    taps.sent(stream('2'), type, response);
    const [a, b] = (await tap.next()) ?? [];
    expect(a?.names).to.equal(b?.names).and.not.equal(undefined);
  });

  it('of one client: ends with its stream, and takes nothing of others', async () => {
    const taps = new Taps({ now: () => 0 });
    const tap = taps.open({ client: '1', type: undefined });
    taps.sent(stream('2'), type, response);
    taps.ended(stream('2'));
    taps.sent(stream('1'), type, response);
    taps.ended(stream('1'));
    expect((await tap.next())?.map(({ event }) => event)).to.deep.equal(['SENT', 'ENDED']);
    expect(await tap.next()).to.equal(undefined);
    tap.close();
    expect(taps.size).to.equal(0);
  });
});
