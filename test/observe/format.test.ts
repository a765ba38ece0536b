import { expect } from 'chai';
import { shorten } from '../../src/model/text.ts';
import { ago, formatBytes, formatSeconds } from '../../src/observe/format.ts';

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
