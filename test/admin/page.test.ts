import { createHash } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { escaped, fallback, shell } from '../../src/admin/page/page.ts';
import { StatusResponseSchema } from '../../src/gen/distributary/admin/v1/admin_pb.ts';
import { fallbackStyle } from '../../src/gen/page.ts';
import { statusWith } from '../support/inspector.ts';

const now = Date.parse('2026-01-01T00:10:00Z');

function page(status: Parameters<typeof statusWith>[0] = {}) {
  const shown = create(StatusResponseSchema, statusWith(status));
  const model = JSON.stringify({ relay: { nodeId: '</script><script>alert(2)</script>' } });
  return shell(shown, model, [], fallback(shown, now));
}

describe('status page without scripts', () => {
  it('shows state, upstreams, staleness, types and rejections', () => {
    const { body } = page();
    for (const text of [
      'up for 1 h 2 min: ready (serves; 5 problems)',
      'distributary 1.2.3',
      'cp-2:18000',
      'out of date for 10 min, from siblings',
      'cds   3          5         7              1',
      'no such &quot;filter&quot; &amp; more',
      'xds.address: &lt;everybody&gt; may read',
      '$ distributary release --upstream second --type cds --reason &quot;…&quot;',
      'see <a href="runbooks/clients-reject">docs/runbooks/clients-reject.md</a>',
    ]) {
      expect(body).to.include(text);
    }
  });

  it('says which relay it is, and in a sentence what is wrong', () => {
    const { body } = page();
    expect(body).to.include('<h1>relay-eu-1</h1>').and.to.include('node: relay-eu-1 on machine-7');
    expect(body).to.match(
      /Serving 4 clients; upstream second is unreachable \(for 10 min\); 7 removals of cds from second are held back \(for 10 min\); 2 clients with env=prod reject cds &lt;script&gt;alert.+ \(for 10 min\); 2 more problems\./,
    );
    const well = { upstreams: [], types: [], warnings: [], nacks: [], clients: 0 };
    expect(page(well).body).to.include('No client is connected; all is well.');
  });

  it('says why it is not ready, and what is empty', () => {
    const { body } = page({ ready: false, reason: 'no <upstream>', types: [], nacks: [], upstreams: [] });
    expect(body).to.include('not ready: no &lt;upstream&gt;');
    expect(body)
      .to.include('nothing is cached or subscribed to yet')
      .and.to.include('The relay is not ready');
  });

  it('escapes whatever peers say', () => {
    const { body } = page();
    expect(body).not.to.include('<script>alert').and.not.to.include('<b>');
    expect(body).to.include('&lt;script&gt;alert(1)&lt;/script&gt;');
    expect(escaped(`"'<>&`)).to.equal('&quot;&#39;&lt;&gt;&amp;');
    expect(escaped('a\u001b[2J\u0007b\u202ec')).to.equal('a [2J b\\u{202e}c');
  });

  it('loads nothing from elsewhere, and its policy allows its own script and style only', () => {
    const { body, headers } = page();
    expect(body)
      .not.to.match(/(src|href)="(https?:)?\/\//)
      .and.not.to.match(/ (on\w+|style)=/);
    const policy = headers?.['content-security-policy'] ?? '';
    const digest = (text: string) => createHash('sha256').update(text).digest('base64');
    const scripts = [...body.matchAll(/<script>([^]*?)<\/script>/g)].map(([, content]) => content ?? '');
    expect(scripts).to.have.length(1);
    expect(policy).to.include(`script-src 'sha256-${digest(scripts[0] ?? '')}';`);
    const style = /<style>([^]*?)<\/style>/.exec(body)?.[1] ?? '';
    expect(policy).to.include(`style-src 'sha256-${digest(style)}' 'sha256-${digest(fallbackStyle)}';`);
    expect(policy).to.include("default-src 'none'");
  });
});
