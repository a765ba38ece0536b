import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect } from 'chai';
import { root } from '../e2e/support/paths.ts';

/** How many full collections a process makes that comes to hold 3 GB outside of its heap, as one with many TLS connections. */
function collections(before: string, ...options: readonly string[]): number {
  const script = `import { setImmediate } from 'node:timers/promises';
    ${before}
    const held = [];
    while (held.length < 3072) {
      held.push(new ArrayBuffer(1 << 20));
      await setImmediate();
    }`;
  // On one thread, so that only what is allocated decides.
  const args = ['--single-threaded-gc', '--trace-gc', ...options, '--input-type=module', '--eval', script];
  const trace = execFileSync(process.execPath, args, { encoding: 'utf8' });
  return trace.split('\n').filter((line) => line.includes('Mark-Compact')).length;
}

/** For how many MB of young objects there is room, twice, after 100 MB of them have survived. */
function roomForYoung(before: string): number {
  const script = `import { setImmediate } from 'node:timers/promises';
    import { getHeapSpaceStatistics } from 'node:v8';
    ${before}
    const held = [];
    while (held.length < 2_000_000) {
      for (let i = 0; i < 2000; i++) held.push([i]);
      await setImmediate();
    }
    const young = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space');
    console.log((young.space_used_size + young.space_available_size) / 1024 ** 2);`;
  const args = ['--single-threaded-gc', '--max-semi-space-size=32', '--input-type=module', '--eval', script];
  return Math.round(Number(execFileSync(process.execPath, args, { encoding: 'utf8' })));
}

const module = pathToFileURL(join(root, 'src/external-memory.ts')).href;
const asTheRelay = `(await import(${JSON.stringify(module)})).collectAsHeldMemoryGrows();`;

describe('memory of a relay', () => {
  it('outside of the heap is a reason to collect when twice as much is held, and not each time that so much was allocated', () => {
    expect(collections(asTheRelay)).to.be.below(collections('') / 2);
  });

  it('outside of the heap counts as V8 has it where the heap may be less than 2 GB', () => {
    const small = '--max-old-space-size=1024';
    expect(collections(asTheRelay, small)).to.be.above(collections('', small) / 2);
  });

  it('is at most 32 MB for young objects, though more of them survive', () => {
    expect(roomForYoung('')).to.equal(32);
    expect(roomForYoung(asTheRelay)).to.be.at.most(16);
  });
});
