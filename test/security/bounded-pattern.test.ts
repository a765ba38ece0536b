import { expect } from 'chai';
import fc from 'fast-check';
import { RE2JS } from 're2js';
import { compileBounded, writtenOut } from '../../src/security/pattern.ts';

const uuid = '[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}';

describe('patterns of peers', () => {
  const cases: readonly (readonly [pattern: string, text: string, matches: boolean])[] = [
    ['web-[0-9]{1,3}', 'web-17', true],
    ['web-[0-9]{1,3}', 'web-17x', false],
    [uuid, 'deadbeef-0000-1111-2222-0123456789ab', true],
    ['(?:[0-9]{1,3}\\.){3}[0-9]{1,3}', '10.0.0.1', true],
    ['sidecar~.*~web.*', 'sidecar~10.0.0.1~web-1.prod~prod.svc', true],
    ['(?i)web-[a-z]+', 'WEB-Abc', true],
    ['\\x{41}\\p{Greek}', 'Aα', true],
    ['x'.repeat(256), 'x'.repeat(256), true],
    ['.*', 'x'.repeat(1025), false],
  ];
  for (const [pattern, text, matches] of cases) {
    it(`${pattern.slice(0, 40)} of ${text.slice(0, 40)}: ${matches}`, () => {
      const compiled = compileBounded(pattern);
      expect(compiled.ok && compiled.value(text)).to.equal(matches);
    });
  }

  const refused: readonly (readonly [what: string, pattern: string, reason: RegExp])[] = [
    ['too long', 'x'.repeat(257), /257 bytes: at most 256/],
    ['too long in bytes', 'é'.repeat(129), /258 bytes/],
    ['many repetitions', 'x{1000}'.repeat(36), /written out: at most 500/],
    ['a long group, repeated', `(${'a'.repeat(245)}){1000}`, /written out/],
    ['repetitions in repetitions', '((x{10}){10}){10}', /written out/],
    ['a repetition repeated behind an empty quotation', 'x{30}\\Q\\E{30}', /written out/],
    ['a parenthesis that is none', `(${'a'.repeat(100)}[(]b){1000}`, /written out/],
    ['large classes', `(?i)${'\\pL'.repeat(84)}`, /written out/],
    ['a range that is folded', '(?i)[b-\\x{1E942}]', /ASCII only/],
    ['the same within', 'a(?s-i:b)(?si:[^b-\u{1E942}])', /ASCII only/],
    ['not RE2', 'a(?=b)', /invalid/],
  ];
  for (const [what, pattern, reason] of refused) {
    it(`refused: ${what}`, () => {
      const compiled = compileBounded(pattern);
      expect(compiled.ok).to.equal(false);
      expect(compiled.ok ? '' : compiled.error).to.match(reason);
    });
  }

  it('whatever the pattern, RE2 makes at most two instructions of what is counted', () => {
    const atoms = [
      'a',
      '.',
      '[',
      ']',
      '(',
      ')',
      '(?:',
      '\\(',
      '\\Q',
      '\\E',
      '|',
      '*',
      '+?',
      '^',
      '-',
      '[)]',
      '[(]',
    ];
    const part = fc.oneof(
      fc.constantFrom(...atoms, '[^]a]', '\\pL', '\\x{10}', '{', '}', '{,3}', '(?i)', '(?P<n>'),
      fc.tuple(fc.nat(12), fc.nat(12)).map(([a, b]) => `{${a},${a + b}}`),
      fc.nat(20).map((times) => `{${times}}`),
      fc.nat(9).map((least) => `{${least},}`),
    );
    let compiled = 0;
    fc.assert(
      fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
        const pattern = parts.join('');
        const written = writtenOut(pattern);
        if (written > 3000) return;
        let size: number;
        try {
          size = RE2JS.compile(pattern).programSize();
        } catch {
          return; // no pattern
        }
        compiled++;
        expect(size, pattern).to.be.at.most(2 * written + 4);
      }),
      { numRuns: 5000 },
    );
    expect(compiled).to.be.above(500);
  });
});
