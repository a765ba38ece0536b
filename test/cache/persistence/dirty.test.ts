import { expect } from 'chai';
import { Dirty } from '../../../src/cache/persistence/dirty.ts';
import { resourceName } from '../../../src/model/brand.ts';
import { type } from '../../support/in-memory-relay.ts';
import { interest } from './support.ts';

const eds = type('eds');

describe('what is not on disk yet', () => {
  const made = (): Dirty =>
    new Dirty(
      () => 0,
      new Set(),
      () => {},
    );

  it('is written by itself, however often the same changes during a slow write', () => {
    const dirty = made();
    for (let second = 0; second < 1000; second++) {
      for (let at = 0; at < 100; at++) {
        dirty.resource(eds, resourceName(`e${at}`));
        dirty.interest(interest('eds', `e${at}`));
        dirty.version(eds, 'holder');
      }
    }
    const { everything, types } = dirty.take();
    expect(everything).to.equal(false);
    expect(types.get(eds)?.resources.size).to.equal(100);
  });

  it('is everything once there is more than can be listed', () => {
    const dirty = made();
    for (let at = 0; at < 200_000; at++) dirty.resource(eds, resourceName(`e${at}`));
    dirty.version(eds, 'holder');
    expect(dirty.take().everything).to.equal(true);
    dirty.version(eds, 'holder');
    expect(dirty.take().everything).to.equal(false);
  });
});
