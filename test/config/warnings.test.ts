import { expect } from 'chai';
import { parseConfig } from '../../src/config/load.ts';
import { warnings } from '../../src/config/warnings.ts';

describe('configuration: warnings of a listener that everybody can read', () => {
  const tls = 'tls: { certificate: c, private_key: k }';
  for (const [xds, warned] of [
    ['{}', true],
    ['{ address: "0.0.0.0:18000" }', true],
    ['{ address: "[::]:18000" }', true],
    ['{ address: "10.0.0.1:18000" }', true],
    ['{ address: "relay.example.com:18000" }', true],
    ['{ address: "127.0.0.1:18000" }', false],
    ['{ address: "127.3.2.1:18000" }', false],
    ['{ address: "[::1]:18000" }', false],
    ['{ address: "localhost:18000" }', false],
    ['{ address: "unix:/run/xds" }', false],
    [`{ ${tls} }`, false],
    ['{ authorization: { rules: [{ types: [sds], allow: false }] } }', false],
  ] as const) {
    it(`xds: ${xds}: ${warned ? 'warned of' : 'not warned of'}`, () => {
      const config = parseConfig(`xds: ${xds}\nupstreams: [{ name: a, filesystem: { path: . } }]\n`, 'f', {});
      if (!config.ok) throw new Error(JSON.stringify(config.error));
      expect(warnings(config.value).map(({ path }) => path)).to.deep.equal(warned ? ['xds.address'] : []);
    });
  }
});

describe('configuration: warnings of identities that no client has', () => {
  const rules = 'authorization: { rules: [{ principals: ["spiffe://x/*"], allow: true }] }';
  const parameter = 'parameters: [{ key: env, from: peer.uri_san, pattern: "env/([a-z]+)" }]';
  const address = 'address: "127.0.0.1:18000"';
  const ca = 'tls: { certificate: c, private_key: k, ca: a }';
  for (const [text, warned] of [
    [`xds: { ${address}, ${rules} }`, ['xds.authorization.rules[0].principals']],
    [
      `xds: { ${address}, tls: { certificate: c, private_key: k }, ${rules} }`,
      ['xds.authorization.rules[0].principals'],
    ],
    [`xds: { ${address}, ${ca}, ${rules} }`, []],
    [`xds: { ${address} }\n${parameter}`, ['parameters[0].from']],
    [`xds: { ${address}, ${ca} }\n${parameter}`, []],
  ] as const) {
    it(`${text.replace('\n', ' ')}: ${warned.join() || 'none'}`, () => {
      const config = parseConfig(`${text}\nupstreams: [{ name: a, filesystem: { path: . } }]\n`, 'f', {});
      if (!config.ok) throw new Error(JSON.stringify(config.error));
      expect(warnings(config.value).map(({ path }) => path)).to.deep.equal(warned);
    });
  }
});

describe('configuration: addresses of listeners', () => {
  for (const [text, refused] of [
    ['xds: { address: "127.0.0.1:1" }\nadmin: { address: "127.0.0.1:1" }', ['admin.address']],
    ['xds: { address: "0.0.0.0:1" }\nadmin: { address: "127.0.0.1:1" }', ['admin.address']],
    ['rest: { address: "127.0.0.1:1" }\nmetrics: { address: "[::]:1" }', ['metrics.address']],
    ['xds: { address: "10.0.0.1:1" }\nadmin: { address: "10.0.0.2:1" }', []],
    ['xds: { address: "127.0.0.1:0" }\nadmin: { address: "127.0.0.1:0" }', []],
    ['xds: { address: "127.0.0.1:19000" }', ['admin.address']],
  ] as const) {
    it(`${text.replace('\n', ' ')}: ${refused.join() || 'accepted'}`, () => {
      const config = parseConfig(`${text}\nupstreams: [{ name: a, filesystem: { path: . } }]\n`, 'f', {});
      expect(config.ok ? [] : config.error.map(({ path }) => path)).to.deep.equal(refused);
    });
  }
});
