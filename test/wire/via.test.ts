import { expect } from 'chai';
import { Code } from '../../src/wire/grpc-status.ts';
import { announcesMore, formatVia, loopOf, pathsBelow, relayId } from '../../src/wire/via.ts';

describe('wire/via', () => {
  it('a relay with relays below it announces itself and the paths down to them', () => {
    const leaf = formatVia('leaf/1', []);
    expect(leaf).to.equal('leaf/1');
    const middle = formatVia('mid/1', pathsBelow(leaf));
    expect(middle).to.equal('mid/1, leaf/1');
    expect(formatVia('top/1', pathsBelow(middle))).to.equal('top/1, mid/1, mid/1>leaf/1');
    expect(pathsBelow(undefined)).to.deep.equal([]);
  });

  it('a loop is named from end to end', () => {
    const message = (own: string, header: string): string | undefined =>
      loopOf(own, pathsBelow(header))?.message;
    expect(message('a/1', 'b/1, a/1')).to.match(/^loop: a → b → a: /);
    expect(message('a/1', 'b/1, c/1, c/1>a/1')).to.match(/^loop: a → b → c → a: /);
    expect(message('a/1', 'a/1')).to.match(/^loop: a → a: /);
    expect(loopOf('a/1', pathsBelow('b/1, a/1'))?.code).to.equal(Code.FAILED_PRECONDITION);
  });

  it('relays of one name are told apart by their instances', () => {
    expect(loopOf('a/1', pathsBelow('a/2, a/3'))).to.equal(undefined);
    expect(loopOf('a/1', pathsBelow('a/2, a/1'))?.message).to.match(/^loop: a\/1 → a\/2 → a\/1: /);
  });

  it('node ids of any characters pass', () => {
    const odd = relayId('relé, "1" > 2/3', 'ff');
    expect(odd).to.match(/^[\w%.!~*'()/-]+$/);
    expect(pathsBelow(formatVia(odd, ['x/1']))).to.deep.equal([odd, `${odd}>x/1`]);
    expect(loopOf(odd, [`b/1>${odd}`])?.message).to.include('loop: relé, "1" > 2/3 → b → relé');
  });

  it('what is not understood is left out, and nothing throws', () => {
    expect(pathsBelow('nonsense')).to.deep.equal([]);
    expect(pathsBelow('b/1, , x>y, a b/1')).to.deep.equal(['b/1']);
    expect(loopOf('a/1', pathsBelow('%/1, %ff/2>a/1'))?.message).to.include('loop: ');
  });

  it('is bounded: the nearer relays stay', () => {
    const many = Array.from({ length: 2000 }, (_, index) => `near-${index}/1>far-${index}/1`);
    const header = formatVia('own/1', [...many, 'last/1']);
    expect(header.length).to.be.at.most(8192);
    expect(header.startsWith('own/1, last/1, ')).to.equal(true);
    expect(formatVia('own/1', ['a/1', 'b/1'], 15)).to.equal('own/1, a/1, b/1');
    expect(formatVia('own/1', ['a/1', 'b/1'], 14)).to.equal('own/1, a/1');
  });

  it('takes no more than relays send: 16 hops of 64 bytes, and a header of less than 8 KiB', () => {
    const path = (hops: number): string => Array.from({ length: hops }, (_, hop) => `r${hop}/1`).join('>');
    expect(pathsBelow(`own/1, ${path(15)}`)).to.deep.equal(['own/1', `own/1>${path(15)}`]);
    expect(pathsBelow(`own/1, ${path(16)}, b/1`)).to.deep.equal(['own/1', 'own/1>b/1']);
    const [longest, longer] = [62, 63].map((length) => `${'x'.repeat(length)}/1`);
    expect(pathsBelow(`own/1, ${longest}, ${longer}`)).to.deep.equal(['own/1', `own/1>${longest}`]);
    expect(pathsBelow(longer)).to.deep.equal([]);
    const endless = pathsBelow(Array.from({ length: 10_000 }, (_, index) => `r${index}/1`).join(', '));
    expect(endless.join(', ').length).to.be.below(20_000);
  });

  it('a long node.id makes no longer hop than relays take', () => {
    for (const nodeId of ['x'.repeat(1000), 'é'.repeat(100), `${'x'.repeat(46)}é`]) {
      const own = relayId(nodeId, '0123456789abcdef');
      expect(own.length).to.be.at.most(64);
      expect(pathsBelow(own)).to.deep.equal([own]);
      expect(loopOf(own, [own])?.message).to.include('loop: ');
    }
  });

  it('tells whether there is more to say', () => {
    expect(announcesMore('a/1, b/1', 'a/1')).to.equal(false);
    expect(announcesMore('a/1, b/1', 'a/1, b/1')).to.equal(false);
    expect(announcesMore('a/1', 'a/1, b/1')).to.equal(true);
  });
});
