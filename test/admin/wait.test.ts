import { expect } from 'chai';
import { acceptanceOf, onlyTypeOf, pastNames } from '../../src/admin/missing.ts';
import { resourceName, type TypeUrl, typeUrl } from '../../src/model/brand.ts';
import type { Change, ChangedName } from '../../src/model/change.ts';
import { systemClock } from '../../src/model/clock.ts';
import { Pace, TimeSlices } from '../../src/model/time-slices.ts';
import { typeByName } from '../../src/model/types.ts';
import { InMemoryRelay, node } from '../support/in-memory-relay.ts';

const eds = typeByName('eds') ?? typeUrl('');
const cds = typeByName('cds') ?? typeUrl('');

describe('a look of wait', () => {
  it('at clients that have accepted everything costs nothing by what they have', async () => {
    const lab = new InMemoryRelay();
    const names = Array.from({ length: 100 }, (_, at) => `name-${at}`);
    lab.full('eds', Object.fromEntries(names.map((name) => [name, '1'])));
    const client = lab.delta();
    client.send('eds', { node: node(), resourceNamesSubscribe: names });
    const other = lab.delta();
    other.send('eds', { node: node(), resourceNamesSubscribe: ['other'] });
    for (const response of client.received()) client.ack('eds', response);
    for (const response of other.received()) other.ack('eds', response);
    for (const stream of lab.relay.server.values())
      for (const { subscription } of stream.types)
        Object.assign(subscription ?? {}, {
          holdings: () => expect.fail('what it has is looked at'),
        });
    const look = (...of: readonly string[]) =>
      acceptanceOf(lab.relay, { type: eds, names: new Set(of) }, new TimeSlices(systemClock));
    expect(await look('name-7', 'name-8')).to.include({ clients: 1, missing: 0 });
    expect(await look('nothing')).to.include({ clients: 0, missing: 0 });
  });

  it('without a type is at that of the names, if no other type has had them', async () => {
    const lab = new InMemoryRelay();
    lab.full('eds', { shop: '1' });
    const changes: Change[] = [];
    const changed = (type: TypeUrl, name: string): void => {
      const one: ChangedName = {
        name: resourceName(name),
        change: 'CHANGED',
        bytes: 1,
        verdict: 'RELEASED',
        content: undefined,
      };
      const about = {
        at: 0,
        upstream: 'u',
        type,
        added: 0,
        changed: 1,
        removed: 0,
        names: [one],
        reason: '',
      };
      changes.push({ revision: changes.length + 1, first: false, releasedAt: 0, ...about });
    };
    changed(eds, 'shop');
    const names = new Set(['shop']);
    const pace = new Pace(systemClock);
    const only = async () =>
      onlyTypeOf(lab.relay, names, await pastNames({ changes: () => changes }, names, pace), pace);
    expect(await only()).to.equal(eds);
    changed(cds, 'another');
    expect(await only()).to.equal(eds);
    changed(cds, 'shop');
    expect(await only(), 'another type has had it').to.equal(undefined);
  });
});
