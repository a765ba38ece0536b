import { expect } from 'chai';
import fc from 'fast-check';
import { shortenMiddle } from '../../src/model/text.ts';
import { errorText, keptError, rejectedText } from '../../src/observe/rejection-text.ts';

describe('what was rejected, in words', () => {
  const whole: Parameters<typeof rejectedText>[0] = { name: '', names: [], changed: 0, removal: false };
  const cases: readonly [Partial<typeof whole>, string][] = [
    [{}, 'the whole response'],
    [{ name: 'web', names: ['web'], changed: 1 }, 'web'],
    [{ name: 'web', names: ['web'], changed: 1, removal: true }, 'removal of web'],
    [{ names: ['a', 'b'], changed: 2 }, 'one of a, b'],
    [{ names: ['a', 'b'], changed: 3 }, 'one of a, b and 1 more'],
    [{ names: ['a', 'b'], changed: 12 }, 'one of a, b and 10 more'],
  ];
  for (const [rejected, text] of cases)
    it(text, () => expect(rejectedText({ ...whole, ...rejected })).to.equal(text));
});

/** As Envoy 1.40 writes them: where, the resource, and why. */
const cause =
  'Proto constraint validation failed (RouteConfigurationValidationError.VirtualHosts[0]: embedded message failed validation | caused by DirectResponseActionValidationError.Status: value must be inside range [200, 600))';
const quoted = (lines: number): string =>
  `goo.gle/debugproto    \nname: "web-routes"\n${'virtual_hosts {\n  name: "all"\n}\n'.repeat(lines)}`;

describe('what a client says is wrong', () => {
  it('is shown without the resource that Envoy quotes, with the cause', () => {
    for (const lines of [1, 1000]) {
      const message = `Error adding/updating listener(s) bad: ${quoted(lines)}: ${cause}\nbad2: ${quoted(lines)}: ${cause}\n`;
      const text = errorText(keptError(message), 1000);
      expect(text).to.match(/^Error adding\/updating listener\(s\) bad: \{…\}: Proto constraint/);
      expect(text).to.match(/value must be inside range \[200, 600\)\)$/);
      expect(errorText(message, 300)).to.have.length(300);
    }
  });

  it('keeps its beginning and its end, and its bound', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 200 }), fc.integer({ min: 3, max: 100 }), (text, longest) => {
        const shown = shortenMiddle(text, longest);
        expect(shown.length).to.be.at.most(longest);
        if (text.length <= longest) expect(shown).to.equal(text);
        else {
          const half = longest >> 1;
          expect(text.startsWith(shown.slice(0, half))).to.equal(true);
          expect(text.endsWith(shown.slice(half + 1))).to.equal(true);
        }
      }),
    );
  });
});
