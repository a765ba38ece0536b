import { expect } from 'chai';
import { type TypeUrl, typeUrl } from '../../src/model/brand.ts';
import { MapInUse } from '../../src/model/maps.ts';

describe('keys that a client invents', () => {
  it('are forgotten once nobody uses them, however many there were', () => {
    const types = new MapInUse<TypeUrl, { used: boolean }>(256);
    const kept = { used: true };
    types.set(typeUrl('kept'), kept);
    let most = 0;
    for (let index = 0; index < 10_000; index++) {
      types.dropUnused(({ used }) => !used);
      types.set(typeUrl(`invented/${index}`), { used: false });
      most = Math.max(most, types.size);
    }
    expect(most).to.be.below(1000);
    expect(types.get(typeUrl('kept'))).to.equal(kept);
  });

  it('are dropped at once where only one has room, and cost no more than to add them did', () => {
    const nonces = new MapInUse<string, number>(1);
    let lookedAt = 0;
    for (let index = 0; index < 1000; index++) {
      nonces.dropUnused((of) => {
        lookedAt++;
        return of < index - 3;
      });
      nonces.set(`nonce ${index}`, index);
    }
    expect(nonces.size).to.be.below(10);
    expect(lookedAt).to.be.below(3000);
  });

  it('are all kept while they are used', () => {
    const types = new MapInUse<TypeUrl, object>(256);
    for (let index = 0; index < 1000; index++) {
      types.dropUnused(() => false);
      types.set(typeUrl(`used/${index}`), {});
    }
    expect(types.size).to.equal(1000);
  });
});
