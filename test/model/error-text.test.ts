import { type DescField, hasOption } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import { errorText, headAndTail, keptError, longestError } from '../../src/model/text.ts';
import { envoyRegistry } from '../../src/wire/registry.ts';

const marked = envoyRegistry().getExtension('udpa.annotations.sensitive');
if (marked === undefined) throw new Error('the API marks nothing as sensitive');

/** Characters of one to four bytes. */
const anyText = fc.string({ unit: fc.constantFrom('a', '\n', 'é', '漢', '😀'), maxLength: 120 });
const bytes = (text: string): number => Buffer.byteLength(text);
const caused =
  'Proto constraint validation failed (HttpConnectionManagerValidationError.RouteConfig: embedded message failed validation | caused by RouteConfigurationValidationError.VirtualHosts[0]: embedded message failed validation | caused by VirtualHostValidationError.Routes[0]: embedded message failed validation | caused by RouteValidationError.DirectResponse: embedded message failed validation | caused by DirectResponseActionValidationError.Status: value must be inside range [200, 600))';
const dump = `stat_prefix: "in"
route_config {
  name: "r"
  virtual_hosts {
    domains: "*"
    routes {
      direct_response {
        status: 1000
      }
    }
  }
}
http_filters {
  name: "router"
  typed_config {
    [type.googleapis.com/envoy.extensions.filters.http.router.v3.Router] {
    }
  }
}
`;
/** As Envoy 1.40 says it. */
const listener = (marker = 'goo.gle/debugonly   '): string =>
  `Error adding/updating listener(s) web: ${marker}\n${dump}: ${caused}\n`;

describe('the error of a client', () => {
  it('of Envoy loses the dump in its middle, and keeps where it is and what was wrong', () => {
    expect(errorText(listener(), 600)).to.equal(`Error adding/updating listener(s) web: …: ${caused}`);
  });

  it('that is still too long keeps its head and its tail', () => {
    const text = errorText(listener(), 300);
    expect(text).to.match(/^Error adding\/updating listener\(s\) web: …: Proto constraint validation failed/);
    expect(text).to.match(
      /DirectResponseActionValidationError\.Status: value must be inside range \[200, 600\)\)$/,
    );
    expect(bytes(text)).to.be.at.most(300);
  });

  it('is kept whole where it is not too long, without the marker that differs from process to process', () => {
    expect(keptError(listener())).to.equal(`Error adding/updating listener(s) web: \n${dump}: ${caused}`);
    expect(keptError(listener('goo.gle/debugstr  '))).to.equal(keptError(listener()));
    const short = 'Invalid duration: Expected positive duration: goo.gle/debugproto    \nseconds: -1\n';
    expect(errorText(short, 60)).to.equal('Invalid duration: Expected positive duration: \nseconds: -1');
  });

  describe('has no secrets in its dump', () => {
    const sensitive = [...envoyRegistry()].flatMap((desc) =>
      desc.kind === 'message' ? desc.fields.filter((field) => hasOption(field, marked)) : [],
    );
    const secret = String.raw`the \"HIDDEN\" of \n\001ALSO-HIDDEN`;
    const message = (field: DescField): string => {
      const parent = field.message?.typeName.startsWith('google.protobuf.') ? 'private_key_provider {\n' : '';
      if (field.fieldKind === 'map' && field.mapKind === 'message')
        return `${field.name} {\n  key: "k"\n  value {\n    inline_bytes: "${secret}"\n  }\n}\n`;
      if (field.fieldKind === 'map') return `${field.name} {\n  key: "k"\n  value: "${secret}"\n}\n`;
      if (field.message === undefined) return `${field.name}: "${secret}"\n`;
      const inner = field.message.fields.some(({ name }) => name === 'inline_string')
        ? 'inline_string'
        : 'key';
      return `${parent}  ${field.name} {\n    ${inner}: "${secret}"\n  }\n${parent && '}\n'}`;
    };

    it('by the names of what the API marks as sensitive', () => {
      expect(sensitive.length).to.be.above(20);
      for (const field of sensitive) {
        const text = `Error adding web: goo.gle/debugstr \nname: "web"\n${message(field)}lb: "kept"\n: no such filter`;
        for (const one of [text, text.replaceAll(/\s+/g, ' ')]) {
          const kept = keptError(one);
          expect(kept, field.toString()).to.match(
            /name: "web"[^]*\[redacted\][^]*lb: "kept"[^]*no such filter$/,
          );
          expect(kept, field.toString()).not.to.include('HIDDEN');
        }
      }
    });

    const pem = String.raw`-----BEGIN EC PRIVATE KEY-----\nTHE-PEM+/=\n-----END EC PRIVATE KEY-----\n`;
    for (const [where, text] of [
      ['bytes', 'inline_bytes: "THE-PEM\\001"'],
      ['what Envoy has cut', 'private_key {\n  inline_string: "THE-PEM...(truncated)'],
      ['a field that is not marked', `string_value: "${pem}"`],
      ['a key that is cut', `string_value: "${pem.slice(0, 42)}...(truncated)`],
      ['JSON', `{"private_key":{"inlineString": "THE-PEM"}}`],
      ['JSON in a text', String.raw`"{\"private_key\":{\"inline_string\": \"THE-PEM\"}}"`],
      ['a line with an odd quotation mark', 'no such "filter inline_string: "THE-PEM" there'],
      ['a block that is cut', 'credentials {\n  key: "THE-PEM"\n  client: "THE-PEM'],
      [
        'a text that is too long',
        `${'a: "b"\n'.repeat(5000)}inline_string: "${'THE-PEM'.repeat(1000)}"\n: wrong`,
      ],
    ] as const)
      it(`in ${where}`, () => {
        expect(keptError(`the start: ${text}`))
          .to.match(/^the start: /)
          .and.not.to.include('THE-P');
        expect(keptError(text).endsWith('...(truncated)')).to.equal(text.endsWith('...(truncated)'));
      });

    it('and keeps what only names such fields', () => {
      const text = 'private_key: inline_string is missing (credentials: 2 of {1, 2})';
      expect(keptError(text)).to.equal(text);
    });
  });

  it('of which Envoy itself has cut off the end says where the end is', () => {
    const routes = Array.from({ length: 100 }, (_, at) => `  routes {\n    cluster: "c${at}"\n  }\n`).join(
      '',
    );
    const cut = `goo.gle/debugproto \nname: "r"\nvirtual_hosts {\n${routes}`.slice(0, longestError);
    const received = `${cut}...(truncated)`;
    expect(received.length).to.be.below(longestError);
    expect(keptError(received)).to.match(/^name: "r"[^]*\.\.\.\(truncated\)$/);
    expect(errorText(received, 300)).to.equal('… (Envoy cut off the reason: it is in its log)');
  });

  it('of gRPC, of one line, keeps its head and its tail', () => {
    const grpc = `errors validating RouteConfiguration resource: [${'field:virtual_hosts[0] '.repeat(30)}error:missing virtual host domains]`;
    expect(errorText(grpc, 100))
      .to.match(/^errors validating RouteConf.*…/)
      .and.to.match(/error:missing virtual host domains\]$/);
  });

  it('keeps lines that are no dump', () => {
    const lines = Array.from({ length: 20 }, (_, at) => `cluster-${at}: no endpoints`).join('\n');
    expect(errorText(lines, 120))
      .to.match(/^cluster-0: no endpoints\ncluster-1: /)
      .and.to.match(/cluster-19: no endpoints$/);
  });

  it('property: head and tail survive, and the bound in bytes holds', () => {
    fc.assert(
      fc.property(anyText, anyText, fc.integer({ min: 16, max: 200 }), (start, end, longest) => {
        const whole = start + end;
        const shown = headAndTail(whole, longest);
        expect(bytes(shown)).to.be.at.most(longest);
        if (bytes(whole) <= longest) {
          expect(shown).to.equal(whole);
          return;
        }
        // A character has four bytes at most: of each half three may be missing.
        const half = Math.floor((longest - 3) / 2) - 3;
        const heads = Buffer.from(whole).subarray(0, half);
        const tails = Buffer.from(whole).subarray(-half);
        expect(heads.equals(Buffer.from(shown).subarray(0, half))).to.be.true;
        expect(tails.equals(Buffer.from(shown).subarray(-half))).to.be.true;
      }),
      { numRuns: 2000 },
    );
  });

  it('property: around any dump the words of both ends survive within the bound, and once is enough', () => {
    const word = fc.stringMatching(/^[a-zA-Z]{1,40}$/);
    const field = fc.tuple(word, fc.integer()).map(([name, value]) => `${name}: ${value}\n`);
    fc.assert(
      fc.property(word, fc.array(field, { minLength: 60, maxLength: 200 }), word, (start, fields, end) => {
        const text = `${start}: goo.gle/debugstr  \n${fields.join('')}: ${end}`;
        const shown = errorText(text, 150);
        expect(shown).to.equal(`${start}: …: ${end}`);
        expect(errorText(shown, 150)).to.equal(shown);
        expect(bytes(keptError(text))).to.be.at.most(longestError);
      }),
    );
  });

  it('costs no more than a look at its ends, whatever it has', () => {
    const hostile = [' \n', '\t', '"\\', 'a: "', 'goo.gle/debug', 'a: 1\n', '}\n', '…\n'];
    hostile.push('PRIVATE KEY-----', '-----BEGIN A', 'inline_string: "', 'credentials {', 'credentials    ');
    for (const one of hostile) {
      for (const size of [2 * longestError, 1 << 22]) {
        const before = process.cpuUsage();
        expect(bytes(keptError(one.repeat(Math.floor(size / one.length))))).to.be.at.most(longestError);
        const { user } = process.cpuUsage(before);
        expect(user, JSON.stringify(one)).to.be.below(200_000);
      }
    }
  });
});
