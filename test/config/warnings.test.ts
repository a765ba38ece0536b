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
