import { expect } from 'chai';
import { readDeltaResponse, readSotwResponse } from '../../src/wire/response-reader.ts';

const million = 1_000_000;
/** nonce "n": a control plane may write the nonce last. */
const nonce = Buffer.from([0x2a, 1, 0x6e]);
const entry = (field: number): Buffer => Buffer.from([(field << 3) | 2, 0]);

describe('a response of a control plane', () => {
  for (const [name, read, field] of [
    ['resources over SotW', readSotwResponse, 2],
    ['errors over SotW', readSotwResponse, 7],
    ['resources over delta', readDeltaResponse, 2],
    ['removals over delta', readDeltaResponse, 6],
  ] as const) {
    it(`has a million entries at most, and a nonce to refuse it by: ${name}`, () => {
      const most = Buffer.alloc(2 * million, entry(field));
      expect(read(Buffer.concat([most, nonce])).ok).to.equal(true);
      expect(read(Buffer.concat([most, entry(field), nonce]))).to.deep.equal({
        ok: false,
        error: { reason: 'the response has 1000001 entries: 1000000 are the most', typeUrl: '', nonce: 'n' },
      });
    });
  }
});
