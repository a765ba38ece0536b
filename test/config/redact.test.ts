import { expect } from 'chai';
import { configOf, minimal } from './support.ts';

const dumpOf = (text: string, environment = {}): string =>
  JSON.stringify(configOf(text, environment).source.dump);

describe('configuration: what /config_dump shows', () => {
  it('of a server that is told of changes only the host is shown', () => {
    const check = '{ name: smoke, webhook: { url: "https://ci.example/check?key=hush" } }';
    const notify = '[{ url: "https://hooks.example:444/T/hush" }]';
    const shown = dumpOf(`${minimal}rollout: { notify: ${notify}, checks: [${check}] }\n`);
    expect(shown).to.include('"https://hooks.example:444/[redacted]"').and.not.include('hush');
  });

  it('of such a server nothing is shown if a part of its URL comes from the environment', () => {
    const check = '{ name: smoke, webhook: { url: "https://${CI}/check?key=hush" } }';
    const notify = '[{ url: "https://${SLACK}/services/T/hush" }]';
    const text = `${minimal}rollout: { notify: ${notify}, checks: [${check}] }\n`;
    const shown = dumpOf(text, { CI: 'ci.example', SLACK: 'hooks.example' });
    expect(shown)
      .to.include('"url":"[redacted]"')
      .and.not.match(/hush|example/);
  });

  it('of other servers the query is not shown', () => {
    const check =
      '{ name: errors, prometheus: { url: "http://prom:9090/x?key=hush", query: "a?b", max: 1 } }';
    const tracing = '{ otlp_endpoint: "http://${HOST}/v1?api_key=hush" }';
    const text = `${minimal}rollout: { checks: [${check}] }\ntracing: ${tracing}\n`;
    const shown = dumpOf(text, { HOST: 'otlp' });
    expect(shown).to.include('"http://prom:9090/x?[redacted]"').and.include('"query":"a?b"');
    expect(shown).to.include('"http://${HOST}/v1?[redacted]"').and.not.include('hush');
  });

  it("the file's keys, with every default", () => {
    expect(configOf(minimal).source.dump).to.deep.include({
      drain_delay: '0s',
      drain_timeout: '10s',
      workers: 0,
      cache: { max_bytes: 1_073_741_824, idle_ttl: '600s' },
      upstreams: [
        {
          name: 'files',
          authorities: [],
          types: [],
          names: [],
          filesystem: { path: '.' },
          load_reports: 'AGGREGATE',
          max_removal_hold: '10m',
          required: true,
        },
      ],
    });
  });

  it('what came from the environment as the file has it, numbers too', () => {
    const text = `${minimal}node: { id: "\${ID}", metadata: { a: "\${A:-b}" } }\nlimits: { max_streams: "\${N}" }\n`;
    const dump = dumpOf(text, { ID: 'hush', A: 'hush', N: '777' });
    expect(dump).to.include('"id":"${ID}"').and.include('"a":"${A:-b}"').and.include('"max_streams":"${N}"');
    expect(dump).not.to.match(/hush|777/);
  });

  it('no secrets of free-form metadata, no PEM, no password of a URL', () => {
    const dump = dumpOf(
      `${minimal}node:\n  metadata:\n    api_key: hush\n    nested: { DB_PASSWORD: [hush] }\n    pem: "-----BEGIN PRIVATE KEY-----hush"\n    url: "see https://me:hu/sh@x and http://me:hush@a@host/p?q=a@b"\n    plain: seen\n`,
    );
    expect(dump).to.include('"plain":"seen"').and.include('http://[redacted]@host/p?q=a@b');
    expect(dump.replace('hu/sh', '')).not.to.include('hush');
  });

  it('no values of headers', () => {
    const text = `upstreams: [{ name: a, ads: { endpoints: ["x:1"], headers: { X-Key: hush } } }]\n`;
    expect(dumpOf(text)).to.include('"headers":{"X-Key":"[redacted]"}').and.not.to.include('hush');
  });

  it('paths of keys and certificates as they are', () => {
    const dump = dumpOf(`${minimal}xds: { tls: { certificate: c.pem, private_key: k.pem } }\n`);
    expect(dump).to.include('"private_key":"k.pem"');
  });
});
