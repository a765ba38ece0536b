import { expect } from 'chai';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { RelayProcess } from './support/relay.ts';

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
});
