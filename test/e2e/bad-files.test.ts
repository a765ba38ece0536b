import { expect } from 'chai';
import { z } from 'zod';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RelayProcess } from './support/relay.ts';

const readiness = z.object({
  reason: z.string(),
  upstreams: z.array(z.looseObject({ stale: z.boolean(), reason: z.string().optional() })),
});

describe('files that are refused', function () {
  this.timeout(60_000);
  let files: ResourceFiles;
  let relay: RelayProcess;

  beforeEach(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
    relay = await RelayProcess.start({ upstreams: [files.upstream], drain_timeout: '100ms' });
  });

  afterEach(async () => {
    await relay.stop();
    files[Symbol.dispose]();
  });

  const rejected = (type: string): Promise<number> =>
    relay.metric('upstream_updates_total', `type="${type}",result="rejected"`);
  const becomes = (type: string, count: number) =>
    eventually(async () => expect(await rejected(type), relay.output).to.equal(count));

  it('count as rejected updates of their types: once for each problem, not for each scan', async () => {
    files.writeText('bad.yaml', `resources:\n  - "@type": ${typeOf('eds')}\n    cluster_nam: shop\n`);
    await becomes('eds', 1);
    files.writeText('also.yaml', `resources: [{ "@type": ${typeOf('cds')}, name: shop }]\n`);
    await becomes('cds', 1);
    files.writeText('cut.json', '{ "resources": [');
    await becomes('other', 1);
    expect(await rejected('eds')).to.equal(1);
    files.writeText('bad.yaml', `resources:\n  - "@type": ${typeOf('eds')}\n    cluster_name: [shop]\n`);
    await becomes('eds', 2);
  });

  it('/ready and status say why what is served may be out of date, and what is wrong with which file', async () => {
    files.writeText('bad.yaml', 'resources: [\n');
    const stale = /^stale: files \(\S+bad\.yaml:\d+:.*\)$/;
    await eventually(async () => {
      const { status, body } = await relay.get('/ready');
      const ready = readiness.parse(JSON.parse(body));
      expect([status, ready.upstreams[0]?.stale]).to.deep.equal([200, true]);
      expect(ready.reason).to.match(stale);
      expect(ready.upstreams[0]?.reason).to.include('bad.yaml');
    });
    files.remove('bad.yaml');
    await eventually(async () => {
      const { body } = await relay.get('/ready');
      const ready = readiness.parse(JSON.parse(body));
      expect([ready.reason, ready.upstreams[0]]).to.deep.equal([
        '',
        { name: 'files', connected: true, stale: false, since: null },
      ]);
    });
  });
});
