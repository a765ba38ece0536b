import { fuzzAll } from './fuzz-all.ts';

describe('mangled input, much of it', () => {
  it('never crashes, blocks or grows what takes it', async function () {
    this.timeout(1_500_000);
    await fuzzAll(1, 4000);
  });
});
