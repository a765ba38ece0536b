import { expect } from 'chai';
import { shorten } from '../../src/model/text.ts';
import { ago, formatBytes, formatSeconds, verdictText } from '../../src/observe/format.ts';

describe('format', () => {
  it('bytes', () => {
    const texts = [0, 1023, 1536, 150 * 1024, 3 * 1024 ** 3].map(formatBytes);
    expect(texts).to.deep.equal(['0 B', '1023 B', '1.5 KiB', '150 KiB', '3.0 GiB']);
  });

  it('durations by their two largest units', () => {
    const texts = [0.5, 5, 65, 3600, 3605, 90_061].map(formatSeconds);
    expect(texts).to.deep.equal(['0 s', '5 s', '1 min 5 s', '1 h', '1 h', '1 d 1 h']);
  });

  it('times before now', () => {
    const now = Date.parse('2026-01-01T00:01:05Z');
    expect(ago('2026-01-01T00:00:00Z', now)).to.equal('1 min 5 s');
    expect(ago('', now)).to.be.undefined;
  });

  it('shortens what is too long', () => {
    expect(shorten('abcdef', 6)).to.equal('abcdef');
    expect(shorten('abcdefg', 6)).to.equal('abcde…');
  });
});

describe('where a change is or went', () => {
  const waves = 3;
  for (const [change, text] of [
    [{ verdict: 'RELEASED' }, 'RELEASED'],
    [{ verdict: 'PENDING', state: 'CANARY', wave: 1, waves: 1 }, 'CANARY'],
    [{ verdict: 'PENDING', state: 'CANARY', wave: 2, waves, cause: 'timeout' }, 'CANARY in wave 2 of 3'],
    [{ verdict: 'PENDING', state: 'HELD', wave: 2, waves, cause: 'check' }, 'HELD in wave 2 of 3: check'],
    [{ verdict: 'RELEASED', wave: 3, waves }, 'RELEASED after 3 waves'],
    [{ verdict: 'RELEASED', wave: 1, waves, cause: 'timeout' }, 'RELEASED in wave 1 of 3'],
    [{ verdict: 'DISCARDED', wave: 1, waves, cause: 'traffic' }, 'DISCARDED in wave 1: traffic'],
    [{ verdict: 'DISCARDED', wave: 1, waves: 1, cause: 'traffic' }, 'DISCARDED: traffic'],
  ] as const)
    it(text, () => {
      expect(verdictText(change)).to.equal(text);
    });
});
