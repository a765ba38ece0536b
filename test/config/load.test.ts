import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { loadConfig } from '../../src/config/load.ts';
import { typeInfo } from '../../src/model/types.ts';
import { configOf, expectProblems, minimal, problemsOf, temporaryDirectory } from './support.ts';

const sample = readFileSync(new URL('sample.yaml', import.meta.url), 'utf8');

/** Without the keys of which nothing is said. */
const said = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

describe('configuration: what is accepted', () => {
  it("the contract's sample in the program's units", () => {
    const { source, ...config } = configOf(sample);
    expect(source.file).to.equal('f');
    const expected = {
      node: {
        id: 'relay-eu-1',
        cluster: 'relays',
        metadata: {},
        locality: { region: '', zone: '', subZone: '' },
      },
      xds: {
        address: { kind: 'tcp', host: '0.0.0.0', port: 18000 },
        unixMode: undefined,
        tls: undefined,
        authorization: [],
        sotwVersions: 'VERBATIM',
        plainClients: 'PLAIN',
        legacyWildcard: undefined,
        removalGraceMs: 15_000,
        maxConnectionAgeMs: undefined,
        clientStatus: { enabled: true, principals: [] },
      },
      rest: { address: { kind: 'tcp', host: '0.0.0.0', port: 18001 }, tls: undefined },
      metrics: undefined,
      admin: {
        address: { kind: 'tcp', host: '127.0.0.1', port: 19000 },
        tls: undefined,
        hosts: [],
        readOnly: false,
      },
      upstreams: [
        {
          kind: 'ads',
          name: 'central',
          claims: { authorities: ['example.com'], types: [], names: [] },
          maxRemovalPercent: undefined,
          loadReports: 'AGGREGATE',
          maxRemovalHoldMs: 600_000,
          required: true,
          siblings: undefined,
          endpoints: [
            { kind: 'tcp', host: 'cp-1', port: 18000 },
            { kind: 'unix', path: '/run/cp.sock' },
          ],
          protocol: 'DELTA',
          variants: 'PER_PARAMETERS',
          tls: {
            ca: 'f',
            identity: { certificate: 'f', privateKey: 'f' },
            serverName: 'n',
            serverIdentities: [],
          },
          services: 'AGGREGATED',
          headers: [],
          tokenFile: undefined,
          connectTimeoutMs: 5000,
          resourceTimeoutMs: 15_000,
          keepalive: { timeMs: 30_000, timeoutMs: 10_000 },
          backoff: { initialMs: 500, maxMs: 30_000 },
          failbackAfterMs: 30_000,
        },
        {
          kind: 'filesystem',
          name: 'files',
          claims: { authorities: [], types: [], names: [] },
          maxRemovalPercent: undefined,
          loadReports: 'AGGREGATE',
          maxRemovalHoldMs: 600_000,
          required: true,
          siblings: undefined,
          path: './resources',
        },
      ],
      parameters: [
        {
          key: 'env',
          from: 'node.metadata.env',
          authorities: [],
          pattern: '^([a-z]+)',
          default: 'prod',
          values: [],
          to: 'node.metadata.env',
          trusted: false,
        },
      ],
      cache: {
        maxBytes: 1_073_741_824,
        idleTtlMs: 600_000,
        persistence: { path: '/var/lib/distributary', secrets: false, leaveOut: [] },
      },
      limits: {
        maxStreams: 20_000,
        maxSubscriptionsPerStream: 10_000,
        maxRequestBytes: 4_194_304,
        maxPollBytes: 1_048_576,
        maxResponseBytes: 67_108_864,
        subscriptionChangesPerSecond: 100,
        maxConstraintDepth: 64,
        maxUpstreamSessions: 1000,
        stalledTimeoutMs: 60_000,
        firstRequestTimeoutMs: 10_000,
        maxConnections: 40_000,
        maxConnectionsPerPeer: 0,
        maxStreamsPerPeer: 0,
        maxHeldBytes: 1_073_741_824,
        maxHeldBytesPerPeer: 268_435_456,
        maxWorkPerPeerMs: 500,
        maxLoadReportClusters: 10_000,
        relayPeers: [],
      },
      rollout: undefined,
      history: { maxBytes: 67_108_864, maxAgeMs: 86_400_000 },
      watchdog: { enabled: true, timeoutMs: 30_000 },
      workers: 0,
      drainDelayMs: 0,
      drainTimeoutMs: 10_000,
      tracing: { otlpEndpoint: undefined, ratio: 0.01 },
    };
    expect(said(config)).to.deep.equal(said(expected));
  });

  it('the defaults of rollout and history', () => {
    const { rollout, history } = configOf(`${minimal}rollout: {}\n`);
    const { types, ...rest } = rollout ?? { types: [] };
    expect(types.map((type) => typeInfo(type).short)).to.have.members(
      'lds srds rds vhds cds sds ecds'.split(' '),
    );
    expect(rest).to.deep.equal({
      waves: [{ path: 'rollout.canary', percent: 5, match: [], elects: true, bakeMs: undefined }],
      canaryPrincipals: [],
      bakeMs: 30_000,
      maxWaitMs: 600_000,
      onTimeout: 'HOLD',
      onFailure: 'HOLD',
      checks: [],
      notify: [],
      maxDisconnects: 20,
      guard: { maxEmptiedPercent: 20 },
      mode: 'AUTOMATIC',
    });
    const query = 'prometheus: { url: "http://p:9090", query: up, min: -1, max: 0.5 }';
    const [check] =
      configOf(`${minimal}rollout: { checks: [{ name: c, ${query} }] }\n`).rollout?.checks ?? [];
    expect(check?.prometheus, 'a bound, not a duration').to.deep.equal({
      ...{ url: 'http://p:9090', query: 'up', min: -1, max: 0.5 },
    });
    expect(configOf(`${minimal}rollout: { traffic: {} }\n`).rollout?.traffic).to.deep.equal({
      maxErrorIncrease: 5,
      maxRequestDrop: 50,
      minRequests: 100,
      intervalMs: 10_000,
    });
    expect(history).to.deep.equal({ maxBytes: 67_108_864, maxAgeMs: 86_400_000 });
    expect(configOf(`${minimal}history: false\n`).history).to.equal(undefined);
  });

  it('canaries by match alone: no percentage beside it', () => {
    const rules = 'parameters: [{ key: env, from: node.metadata.env }]\n';
    const match = [{ key: 'env', value: 'canary' }];
    const { rollout } = configOf(
      `${minimal}${rules}rollout: { canary: { match: ${JSON.stringify(match)} } }\n`,
    );
    expect(rollout?.waves).to.deep.equal([
      { path: 'rollout.canary', percent: 0, match, elects: true, bakeMs: undefined },
    ]);
  });

  it("defaults are the values of the contract's sample", () => {
    const full = configOf(sample);
    const least = configOf(minimal);
    expect(least.xds).to.deep.equal(full.xds);
    expect(least.admin).to.deep.equal(full.admin);
    expect(least.limits).to.deep.equal(full.limits);
    expect({ ...least.cache, persistence: full.cache.persistence }).to.deep.equal(full.cache);
    expect(least.drainTimeoutMs).to.equal(full.drainTimeoutMs);
    const ads = configOf('upstreams: [{ name: a, ads: { endpoints: ["cp:1"] } }]').upstreams[0];
    expect(said({ ...full.upstreams[0], tls: undefined, ...ads })).to.deep.equal(said(ads));
    expect(configOf(`${minimal}parameters: [{ key: env, from: node.id }]\n`).parameters[0]).to.deep.equal({
      key: 'env',
      from: 'node.id',
      authorities: [],
      pattern: undefined,
      default: undefined,
      values: [],
      to: 'node.metadata.env',
      trusted: false,
    });
  });

  it('a duration of 0 needs no unit', () => {
    for (const zero of ['0', '0.0', '"0"', '0s', '"${ZERO:-0}"']) {
      const of = `removal_grace: ${zero} }\ncache: { idle_ttl: ${zero} }\ndrain_delay: ${zero}\ndrain_timeout: ${zero}`;
      const { xds, cache, drainDelayMs, drainTimeoutMs } = configOf(`${minimal}xds: { ${of}\n`);
      const read = [xds.removalGraceMs, cache.idleTtlMs, drainDelayMs, drainTimeoutMs];
      expect(read, zero).to.deep.equal([0, 0, 0, 0]);
    }
  });

  it('types by short name or URL, claims, authorization, legacy wildcards, listeners of every kind', () => {
    const cds = 'type.googleapis.com/envoy.config.cluster.v3.Cluster';
    const config = configOf(`
xds:
  address: "unix:/run/xds.sock"
  legacy_wildcard: [CDS, example.com/some.Type]
  authorization:
    rules:
      - { principals: ["spiffe://a/*", "dns:*.x"], types: [cds], names: ["a*"], allow: true }
      - { allow: false }
  tls: { certificate: c, private_key: k, ca: a, require_client_certificate: true }
admin: { address: "[::1]:0" }
limits: { relay_peers: ["spiffe://a/relay"] }
upstreams: [{ name: u, types: [cds], names: ["a*"], filesystem: { path: x } }]
`);
    expect(said(config.xds)).to.deep.include(
      said({
        address: { kind: 'unix', path: '/run/xds.sock' },
        legacyWildcard: [cds, 'example.com/some.Type'],
        authorization: [
          {
            principals: ['spiffe://a/*', 'dns:*.x'],
            types: [cds],
            names: [{ text: 'a', prefix: true }],
            allow: true,
          },
          { principals: undefined, types: undefined, names: undefined, allow: false },
        ],
        tls: {
          certificate: 'c',
          privateKey: 'k',
          ca: 'a',
          requireClientCertificate: true,
          sessionTickets: true,
          ticketSecret: undefined,
        },
      }),
    );
    expect(config.admin.address).to.deep.equal({ kind: 'tcp', host: '::1', port: 0 });
    expect(config.upstreams[0]?.claims).to.deep.equal({
      authorities: [],
      types: [cds],
      names: [{ text: 'a', prefix: true }],
    });
  });

  it('JSON, with tabs and a $schema', () => {
    const value = { $schema: './config.schema.json', upstreams: [{ name: 'f', filesystem: { path: '.' } }] };
    expect(configOf(JSON.stringify(value, undefined, '\t')).upstreams[0]?.name).to.equal('f');
  });

  it('YAML anchors and aliases', () => {
    const config = configOf(`
upstreams:
  - { name: a, types: [cds], ads: &control { endpoints: ["cp:1"] } }
  - { name: b, ads: *control }
`);
    expect(config.upstreams[1]).to.deep.include({ endpoints: [{ kind: 'tcp', host: 'cp', port: 1 }] });
  });

  it('§6.1 claims are the same in every spelling', () => {
    const [upstream] = configOf(
      'upstreams: [{ name: a, authorities: ["ex%61mple.com"], names: ["xdstp://a/T/w%65b?z=1&e=x", "xdstp://a/T/%65*"], filesystem: { path: x } }]',
    ).upstreams;
    expect(upstream?.claims).to.deep.include({
      authorities: ['example.com'],
      names: [
        { text: 'xdstp://a/T/web?e=x&z=1', prefix: false },
        { text: 'xdstp://a/T/e', prefix: true },
      ],
    });
  });

  it('a control plane without ADS claims what its protocol has services for', () => {
    const { upstreams } = configOf(
      'upstreams: [{ name: a, ads: { endpoints: ["cp:1"], services: PER_TYPE } }, { name: b, ads: { endpoints: ["cp:1"] } }]',
    );
    expect(upstreams.map(({ claims }) => claims.services)).to.deep.equal(['DELTA', undefined]);
  });

  it('an empty tls is none, upstream too', () => {
    const [upstream] = configOf('upstreams: [{ name: a, ads: { endpoints: ["cp:1"], tls: {} } }]').upstreams;
    expect(upstream).to.have.property('tls', undefined);
  });

  it('free-form metadata keeps null, nesting and keys that JavaScript knows', () => {
    const { metadata } = configOf(
      `${minimal}node: { metadata: { constructor: 1, toString: null, a: [{ b: true }] } }\n`,
    ).node;
    expect(Object.entries(metadata)).to.deep.equal([
      ['constructor', 1],
      ['toString', null],
      ['a', [{ b: true }]],
    ]);
  });
});

describe('configuration: traces', () => {
  it('an endpoint and a ratio', () => {
    const { tracing } = configOf(`${minimal}tracing: { otlp_endpoint: "http://collector:4318", ratio: 1 }\n`);
    expect(tracing).to.deep.equal({ otlpEndpoint: 'http://collector:4318', ratio: 1 });
  });

  it('a ratio is 0 to 1, and an endpoint has http or https', () => {
    expectProblems(problemsOf(`${minimal}tracing: { otlp_endpoint: "collector:4317", ratio: 2 }\n`), [
      '4:27: tracing.otlp_endpoint: "collector:4317" is not the URL of an OTLP collector: use one with http:// or https://',
      '4:52: tracing.ratio: ',
    ]);
  });
});

describe('configuration: files', () => {
  const directory = temporaryDirectory();

  it('a file that is not there is one problem', () => {
    const file = join(directory(), 'none.yaml');
    expect(loadConfig(file, {})).to.deep.equal({
      ok: false,
      error: [
        {
          path: '',
          line: 1,
          column: 1,
          message: 'cannot be read: there is no such file or directory (ENOENT)',
        },
      ],
    });
  });

  it('a directory is one problem', () => {
    const loaded = loadConfig(directory(), {});
    expect(loaded.ok ? [] : loaded.error.map(({ message }) => message)).to.deep.equal([
      'cannot be read: it is a directory (EISDIR)',
    ]);
  });

  it('a good file is loaded', () => {
    const file = join(directory(), 'good.yaml');
    writeFileSync(file, minimal);
    const loaded = loadConfig(file, {});
    expect(loaded.ok && loaded.value.source.file).to.equal(file);
  });
});
