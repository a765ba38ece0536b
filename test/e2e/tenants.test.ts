import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { temporaryDirectory } from './support/paths.ts';
import { outcome } from './support/process.ts';
import { distributary, RelayProcess } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

/** What a tenant may try to get at another's resources by the rules of the configuration. */
describe('tenants: the rules', () => {
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

  describe('names', () => {
    const clusterType = 'envoy.config.cluster.v3.Cluster';
    const secret = `xdstp://example.com/${clusterType}/team-b/secret?a=1&b=2`;

    before(() => {
      resources.writeText(
        'cds.yaml',
        `resources:
${cluster('team-a/web', [])}
${cluster('team-b/secret', ['team-a/alias'])}
${cluster('team-a/known', ['team-b/known'])}
${cluster(secret, [])}
`,
      );
    });

    /** The resources of all responses, once what is the client's own is among them. */
    const got = (client: XdsClient): Promise<readonly string[]> =>
      eventually(() => {
        const bodies = client
          .of('cds')
          .flatMap(({ first }) => first.map((bytes) => bytes.toString('latin1')));
        expect(bodies.join()).to.include('team-a/web');
        return bodies;
      });

    for (const protocol of ['delta', 'sotw'] as const) {
      it(`a tenant asks for another's resource by an alias that is its own: nothing (${protocol})`, async () => {
        const rules = [{ names: ['team-a/*'], allow: true }];
        await using relay = await RelayProcess.start({
          upstreams: [resources.upstream],
          xds: { authorization: { rules } },
        });
        await using client = new XdsClient(relay.xds, protocol);
        client.subscribe('cds', ['team-a/web', 'team-a/alias', 'team-a/known', 'team-b/secret', '*']);
        const bodies = await got(client);
        expect(bodies).to.have.length(1);
        expect(bodies[0]).to.not.include('team-b');
      });

      it(`a tenant spells a denied xdstp name as the rule does not: nothing (${protocol})`, async () => {
        const rules = [
          { names: [`xdstp://example.com/${clusterType}/te%61m-b/secret?b=2&a=1`], allow: false },
          { allow: true },
        ];
        await using relay = await RelayProcess.start({
          upstreams: [resources.upstream],
          xds: { authorization: { rules } },
        });
        await using client = new XdsClient(relay.xds, protocol);
        const spellings = [
          secret,
          `xdstp://example.com/${clusterType}/team-b/secret?b=2&a=1`,
          `xdstp://ex%61mple.com/${clusterType}/team-b/s%65cret?a=1&b=%32`,
          `xdstp://example.com/${clusterType}/team-b/*?a=1&b=2`,
        ];
        client.subscribe('cds', ['team-a/web', ...spellings]);
        const bodies = await got(client);
        expect(bodies).to.have.length(1);
        expect(bodies[0]).to.not.include('secret');
      });
    }
  });
});

const cluster = (name: string, aliases: readonly string[]): string => `
  - "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
    name: ${JSON.stringify(name)}
    aliases: ${JSON.stringify(aliases)}
    resource:
      "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
      name: ${JSON.stringify(name)}
`;
