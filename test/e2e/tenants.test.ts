import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { temporaryDirectory } from './support/paths.ts';
import { outcome } from './support/process.ts';
import { distributary, RelayProcess } from './support/relay.ts';

/** What a tenant may try to get at another's resources by the rules of the configuration. */
describe('tenants: the rules', function () {
  this.timeout(30_000);
  let resources: ResourceFiles;

  before(() => {
    resources = new ResourceFiles();
  });
  after(() => resources?.[Symbol.dispose]());

  const certificate = { key: 'tenant', from: 'peer.uri_san', pattern: '/tenant/([^/]+)', trusted: true };
  const metadata = { key: 'tenant', from: 'node.metadata.tenant' };

  it('a tenant without a certificate names itself in its metadata: the mixture is refused', async () => {
    using files = temporaryDirectory();
    const path = join(files.path, 'relay.json');
    writeFileSync(
      path,
      JSON.stringify({ upstreams: [resources.upstream], parameters: [certificate, metadata] }),
    );
    for (const command of ['validate', 'run']) {
      const { code, output } = await outcome(distributary(command, '--config', path));
      expect(code, command).to.equal(2);
      expect(output).to.include('parameters[0] (from "peer.uri_san", trusted: true)');
      expect(output).to.include('parameters[1] (from "node.metadata.tenant", trusted: false)');
    }
  });

  it('a tenant that is trusted by what it says of itself: the log warns, at the start and at a reload', async () => {
    const config = { upstreams: [resources.upstream], parameters: [{ ...metadata, trusted: true }] };
    await using relay = await RelayProcess.start(config);
    const warned = () =>
      relay.log.filter(
        ({ level, warnings }) => level === 'warn' && JSON.stringify(warnings)?.includes('parameters[0].from'),
      );
    await eventually(() => expect(warned()).to.have.length(1));
    relay.configure({ ...config, drain_timeout: '1s' });
    await eventually(() => expect(warned()).to.have.length(2));
  });
});
