import { deserialize, serialize } from 'node:v8';
import { expect } from 'chai';
import { anotherBuild, isToPrimary, isToWorker, sealed } from '../../src/workers/ipc-messages.ts';

/** As IPC does. */
const sent = (message: unknown): unknown => deserialize(serialize(message));

describe('messages between the primary and its workers', () => {
  it('are read by processes of the same build', () => {
    expect(isToWorker(sent(sealed({ kind: 'drain', milliseconds: 1 })))).to.equal(true);
    expect(isToPrimary(sent(sealed({ kind: 'turned' })))).to.equal(true);
  });

  it('of another build are refused, by a message that all builds understand', () => {
    for (const message of [undefined, 'text', {}, { kind: 'turned' }, { kind: 'turned', build: '0.0.1' }]) {
      expect(isToWorker(message)).to.equal(false);
      expect(isToPrimary(message)).to.equal(false);
    }
    expect(sent(sealed(anotherBuild)))
      .to.include({ kind: 'failed' })
      .and.to.have.property('reason');
  });

  it('have a set once that is in them twice', () => {
    const names = new Set(Array.from({ length: 1000 }, (_, index) => `cds ${index}`));
    const one = serialize([names]).length;
    expect(serialize([names, names]).length).to.be.lessThan(one + 10);
  });
});
