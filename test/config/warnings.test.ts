import { expect } from 'chai';
import { examineConfig, parseConfig } from '../../src/config/load.ts';
import { problemLine } from '../../src/config/source.ts';
import { contradictions, hints, warnings } from '../../src/config/warnings.ts';
import { expectProblems } from './support.ts';

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

describe('configuration: warnings of an admin listener where everybody can change something', () => {
  const tls = 'tls: { certificate: c, private_key: k }';
  for (const [admin, warned] of [
    ['{}', false],
    ['{ address: "[::1]:19000" }', false],
    ['{ address: "0.0.0.0:19000" }', true],
    ['{ address: "relay.example.com:19000", hosts: ["*"] }', true],
    ['{ address: "0.0.0.0:19000", read_only: true }', false],
    [`{ address: "0.0.0.0:19000", ${tls} }`, false],
  ] as const) {
    it(`admin: ${admin}: ${warned ? 'warned of' : 'not warned of'}`, () => {
      const rules = 'xds: { authorization: { rules: [{ allow: true }] } }';
      const text = `${rules}\nadmin: ${admin}\nupstreams: [{ name: a, filesystem: { path: . } }]\n`;
      const config = parseConfig(text, 'f', {});
      if (!config.ok) throw new Error(JSON.stringify(config.error));
      expect(warnings(config.value).map(({ path }) => path)).to.deep.equal(warned ? ['admin.address'] : []);
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
    [`xds: { ${address} }\nlimits: { relay_peers: ["spiffe://x/relay"] }`, ['limits.relay_peers']],
    [`xds: { ${address}, ${ca} }\nlimits: { relay_peers: ["spiffe://x/relay"] }`, []],
    [`xds: { ${address}, client_status: { principals: ["dns:ops"] } }`, ['xds.client_status.principals']],
    [`xds: { ${address}, ${ca}, client_status: { principals: ["dns:ops"] } }`, []],
  ] as const) {
    it(`${text.replace('\n', ' ')}: ${warned.join() || 'none'}`, () => {
      const config = parseConfig(`${text}\nupstreams: [{ name: a, filesystem: { path: . } }]\n`, 'f', {});
      if (!config.ok) throw new Error(JSON.stringify(config.error));
      expect(warnings(config.value).map(({ path }) => path)).to.deep.equal(warned);
    });
  }
});

describe('configuration: what validate says of it, and a relay does not refuse', () => {
  const ads = (endpoint: string, more = '') =>
    `upstreams: [{ name: cp, ads: { endpoints: ["${endpoint}"]${more} } }]`;
  const other = ads('cp:18000');
  const upstreams = (...entries: string[]): string =>
    `upstreams: [${entries
      .map((entry) => (entry.includes('ads') ? entry : `filesystem: { path: . }${entry && ', '}${entry}`))
      .map((entry, at) => `{ name: "${at}", ${entry} }`)
      .join(', ')}]`;
  for (const [text, refused] of [
    [`xds: { address: "127.0.0.1:18000" }\n${ads('127.0.0.1:18000')}`, 'upstreams[0].ads.endpoints[0]'],
    [`xds: { address: "0.0.0.0:18000" }\n${ads('localhost:18000')}`, 'upstreams[0].ads.endpoints[0]'],
    [`xds: { address: "[::]:18000" }\n${ads('[::1]:18000')}`, 'upstreams[0].ads.endpoints[0]'],
    [`xds: { address: "unix:/run/xds" }\n${ads('unix:/run/xds')}`, 'upstreams[0].ads.endpoints[0]'],
    [`xds: { address: "10.0.0.1:18000" }\n${ads('127.0.0.1:18000')}`, undefined],
    [`xds: { address: "127.0.0.1:18000" }\n${ads('127.0.0.1:18001')}`, undefined],
    [upstreams('', 'types: [cds]'), 'upstreams[1]'],
    [upstreams('names: ["a*", "*"]', ''), 'upstreams[1]'],
    [upstreams('authorities: [a], names: ["*"]', ''), 'upstreams[1]'],
    [upstreams('authorities: [a]', ''), undefined],
    [upstreams('types: [cds], names: ["*"]', ''), undefined],
    [upstreams('names: ["a*"]', ''), undefined],
    [upstreams('ads: { endpoints: ["cp:1"], services: PER_TYPE }', ''), undefined],
    [`${other}\ncache: { persistence: { path: package.json } }`, 'cache.persistence.path'],
    [`${other}\ncache: { persistence: { path: package.json/below/it } }`, 'cache.persistence.path'],
    [`${other}\ncache: { persistence: { path: /proc/nothing/can/be/made } }`, 'cache.persistence.path'],
    [`${other}\ncache: { persistence: { path: test/there/is/nothing/yet } }`, undefined],
  ] as const) {
    it(`${text.replace('\n', ' ')}: ${refused ?? 'nothing'}`, () => {
      const { problems, config } = examineConfig(`${text}\n`, 'f', {}, Date.now());
      if (config === undefined) throw new Error(JSON.stringify(problems));
      expect(problems.map(({ path }) => path)).to.deep.equal(refused === undefined ? [] : [refused]);
    });
  }

  for (const [rollout, refused] of [
    ['{ bake: 2m, max_wait: 1m }', ['2:18: rollout.bake: a bake of 120s is longer than max_wait (60s)']],
    ['{ max_wait: 10s }', ['2:1: rollout.bake: a bake of 30s is longer than max_wait (10s)']],
    ['{ bake: 11m }', ['2:18: rollout.bake: a bake of 660s is longer than max_wait (600s)']],
    ['{ max_wait: 30s }', []],
    ['{ mode: MANUAL, max_wait: 10s }', []],
    ['{ max_wait: 5s, waves: [{ percent: 1, bake: 1s }, { percent: 2, bake: 5s }] }', []],
    [
      '{ waves: [{ percent: 1 }, { percent: 2, bake: 11m }] }',
      ['2:56: rollout.waves[1].bake: a bake of 660s is longer than max_wait (600s)'],
    ],
    [
      '{ max_wait: 5s, waves: [{ percent: 1, bake: 1s }, { percent: 2 }] }',
      ['2:1: rollout.bake: a bake of 30s is longer than max_wait (5s)'],
    ],
  ] as const) {
    it(`bakes, and how long a change waits: ${rollout}: ${refused.length > 0 ? 'every change would time out' : 'nothing'}`, () => {
      const text = `xds: { address: "127.0.0.1:1" }\nrollout: ${rollout}\n${other}\n`;
      const config = parseConfig(text, 'f', {});
      if (!config.ok) throw new Error(JSON.stringify(config.error));
      const { problems } = examineConfig(text, 'f', {}, Date.now());
      for (const found of [problems, warnings(config.value)])
        expectProblems(
          found.map((one) => problemLine('f', one).slice('f:'.length)),
          refused,
        );
    });
  }

  it('of an upstream whose claims are wrong nobody knows what it leaves to others', () => {
    const wrong = upstreams('types: cds', 'type: [cds]', 'types: [lds]').replace(/]$/, ', x]');
    const { problems } = examineConfig(`${wrong}\n`, 'f', {}, Date.now());
    expect(problems.map(({ path, message }) => `${path}: ${message}`)).to.deep.equal([
      'upstreams[0].types: expected a list, got the string "cds"',
      'upstreams[1].type: unknown key "type": did you mean "types"?',
      'upstreams[3]: expected a mapping, got the string "x"',
    ]);
    const otherwise = upstreams('ads: { endpoints: ["cp"] }', '');
    const found = examineConfig(`${otherwise}\n`, 'f', {}, Date.now()).problems.map(({ path }) => path);
    expect(found).to.have.members(['upstreams[0].ads.endpoints[0]', 'upstreams[1]']);
  });

  const tls = (ca: string): string =>
    `xds: { address: "0.0.0.0:1", tls: { certificate: c, private_key: k${ca} } }`;
  for (const [more, warned] of [
    [tls(', ca: a'), true],
    [`${tls(', ca: a')}\nlimits: { relay_peers: ["dns:relay.svc"] }`, false],
    [tls(''), false],
    ['parameters: [{ key: env, from: node.cluster, values: [prod] }]', true],
  ] as const) {
    it(`siblings that refuse one another: ${more.replaceAll('\n', ' ')}: ${warned ? 'warned' : 'nothing'}`, () => {
      const upstream = '{ name: a, ads: { endpoints: ["cp:1"] }, siblings: { address: "peers:1" } }';
      const config = parseConfig(`upstreams: [${upstream}]\n${more}\n`, 'f', {});
      if (!config.ok) throw new Error(JSON.stringify(config.error));
      const paths = contradictions(config.value).map(({ path }) => path);
      expect(paths).to.deep.equal(warned ? ['upstreams[0].siblings'] : []);
    });
  }

  for (const [failure, warned] of [
    ['HOLD', true],
    ['DISCARD', false],
  ] as const) {
    it(`checks with on_failure: ${failure}: ${warned ? 'a bad change stays with the canaries' : 'nothing'}`, () => {
      const check = '{ name: smoke, webhook: { url: "http://ci/" } }';
      const text = `${other}\nrollout: { on_failure: ${failure}, checks: [${check}] }\n`;
      const config = parseConfig(text, 'f', {});
      if (!config.ok) throw new Error(JSON.stringify(config.error));
      const paths = contradictions(config.value).map(({ path }) => path);
      expect(paths).to.deep.equal(warned ? ['rollout.checks'] : []);
    });
  }

  for (const [rollout, warned] of [
    ['{ traffic: {}, bake: 30s }', ['rollout.traffic']],
    ['{ traffic: {}, bake: 30s, on_failure: DISCARD }', []],
    ['{ traffic: {}, bake: 29s, on_failure: DISCARD }', ['rollout.traffic.interval']],
    [
      '{ traffic: { interval: 5s }, waves: [{ percent: 1, bake: 14s }, { percent: 5 }], on_failure: DISCARD }',
      ['rollout.traffic.interval'],
    ],
  ] as const) {
    it(`traffic that can say nothing, or leaves a bad change: ${rollout}`, () => {
      const config = parseConfig(`${other}\nrollout: ${rollout}\n`, 'f', {});
      if (!config.ok) throw new Error(JSON.stringify(config.error));
      expect(contradictions(config.value).map(({ path }) => path)).to.deep.equal(warned);
    });
  }

  for (const [rule, upstreams, hinted] of [
    ['key: cluster, from: node.cluster', other, true],
    ['key: id, from: node.id', other, true],
    ['key: env, from: node.metadata.team.env', other, true],
    ['key: env, from: node.metadata.env', other, false],
    ['key: cluster, from: node.cluster, to: node.cluster', other, false],
    ['key: cluster, from: node.cluster, to: node.metadata.cluster', other, false],
    ['key: cluster, from: node.cluster', ads('cp:1', ', variants: NATIVE'), false],
  ] as const) {
    it(`${rule}: ${hinted ? 'a hint what a control plane sees' : 'no hint'}`, () => {
      const config = parseConfig(`${upstreams}\nparameters: [{ ${rule} }]\n`, 'f', {});
      if (!config.ok) throw new Error(JSON.stringify(config.error));
      expect(hints(config.value).map(({ path }) => path)).to.deep.equal(hinted ? ['parameters[0].from'] : []);
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

describe('configuration: warnings of names that match nothing', () => {
  it('a * that is not at the end of a name stands for itself, but for globs of xdstp', () => {
    const config = parseConfig(
      `xds:
  address: "127.0.0.1:0"
  authorization:
    rules:
      - { names: ["a", "b*", "*", "*-secret", "c**"], allow: false }
      - { allow: true }
upstreams:
  - { name: a, names: ["x*y", "xdstp://a/t/b/*?c=d"], ads: { endpoints: ["cp:1"] } }
`,
      'configuration',
      {},
    );
    if (!config.ok) throw new Error(JSON.stringify(config.error));
    expect(warnings(config.value).map(({ path }) => path)).to.deep.equal([
      'xds.authorization.rules[0].names[3]',
      'xds.authorization.rules[0].names[4]',
      'upstreams[0].names[0]',
    ]);
  });
});
