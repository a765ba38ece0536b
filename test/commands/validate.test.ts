import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse as parseYaml } from 'yaml';
import { z } from 'zod';
import { validate } from '../../src/commands/validate.ts';
import { temporaryDirectory } from '../config/support.ts';
import { issueCertificate } from '../support/certificates.ts';

const found = z.looseObject({ file: z.string(), message: z.string() });
const report = z.object({
  file: z.string(),
  ok: z.boolean(),
  problems: z.array(found),
  warnings: z.array(found),
});

describe('distributary validate', () => {
  const directory = temporaryDirectory();

  const run = async (argv: readonly string[], environment = {}) => {
    const written = { out: '', err: '' };
    const code = await validate(argv, {
      out: (text) => void (written.out += text),
      err: (text) => void (written.err += text),
      environment,
    });
    return { code, ...written };
  };

  const file = (text: string): string => {
    const path = join(directory(), 'config.yaml');
    writeFileSync(path, text);
    return path;
  };

  it('says ok and what the configuration holds', async () => {
    mkdirSync(join(directory(), 'resources'));
    const path = file(
      `xds: { address: "127.0.0.1:18000" }\nupstreams: [{ name: files, filesystem: { path: "\${DIR}/resources" } }]\n`,
    );
    expect(await run(['--config', path], { DIR: directory() })).to.deep.equal({
      code: 0,
      out: `${path}: ok\nupstreams: files (filesystem); parameter rules: 0; authorization rules: 0\n`,
      err: '',
    });
  });

  it('--json prints problems and warnings as data, on stdout', async () => {
    const path = file('upstreams:\n  - name: a\n    ads: { endpoints: ["x:1"] }\nworkers: many\n');
    const bad = await run(['--config', path, '--json']);
    expect([bad.code, bad.err]).to.deep.equal([2, '']);
    const { problems, ...rest } = report.parse(JSON.parse(bad.out));
    expect(rest).to.deep.equal({ file: path, ok: false, warnings: [] });
    expect(problems).to.have.length(1);
    expect(problems[0]).to.deep.include({ file: path, line: 4, column: 10, path: 'workers' });
    expect(problems[0]?.message).to.include('many');

    mkdirSync(join(directory(), 'broken'));
    writeFileSync(join(directory(), 'broken/a.json'), '{ "resources": [ {} ] }');
    const files = file(`upstreams: [{ name: a, filesystem: { path: ${join(directory(), 'broken')} } }]\n`);
    const resources = report.parse(JSON.parse((await run(['--config', files, '--json'])).out));
    expect(resources.problems[0]?.file).to.equal(join(directory(), 'broken/a.json'));

    const open = file('upstreams: [{ name: a, ads: { endpoints: ["x:1"] } }]\n');
    const good = await run(['--config', open, '--json']);
    expect(good.code).to.equal(0);
    const { ok, problems: none, warnings } = report.parse(JSON.parse(good.out));
    expect([ok, none]).to.deep.equal([true, []]);
    expect(warnings[0]).to.deep.include({ file: open, path: 'xds.address' });
  });

  it('-o yaml says the same as -o json, and -o wide what is said without; both at once are refused', async () => {
    const path = file('upstreams: [{ name: a, ads: { endpoints: ["x:1"] } }]\n');
    const [short, json, yaml, plain, wide] = await Promise.all(
      [['--json'], ['-o', 'json'], ['-o', 'yaml'], [], ['-o', 'wide']].map((flags) =>
        run(['--config', path, ...flags]),
      ),
    );
    expect(json).to.deep.equal(short);
    expect([yaml?.code, yaml?.err]).to.deep.equal([0, '']);
    expect(parseYaml(yaml?.out ?? '')).to.deep.equal(JSON.parse(json?.out ?? ''));
    expect(wide).to.deep.equal(plain);
    expect((await run(['--config', path, '--json', '-o', 'yaml'])).code).to.equal(2);
  });

  it('prints every problem with its place, and a count', async () => {
    const path = file('upstreams:\n  - name: a\n    ads: { endpoint: ["x:1"] }\nworkers: many\n');
    expect(await run([`--config=${path}`])).to.deep.equal({
      code: 2,
      out: '',
      err: `${path}:3:5: upstreams[0].ads.endpoints: missing: a list is required
${path}:3:12: upstreams[0].ads.endpoint: unknown key "endpoint": did you mean "endpoints"?
${path}:4:10: workers: expected a number, got the string "many"
${path}: 3 problems
`,
    });
  });

  it('warns of what is dangerous, and accepts it', async () => {
    mkdirSync(join(directory(), 'resources'));
    const path = file(`upstreams: [{ name: files, filesystem: { path: ${directory()}/resources } }]
parameters:
  - { key: tenant, from: node.metadata.tenant, trusted: true }
`);
    expect(await run(['--config', path])).to.deep.include({
      code: 0,
      err: `${path}:1:1: warning: xds.address: 0.0.0.0:18000 is plaintext and has no authorization rules, so anybody who can reach it can read everything, secrets too: set xds.tls and xds.authorization, or listen on 127.0.0.1 or a Unix socket
${path}:3:26: warning: parameters[0].from: the rule for "tenant" is trusted, but a client can write anything into node.metadata.tenant: only peer.uri_san and peer.dns_san come from a verified certificate\n`,
    });
  });

  it('refuses certificates that have expired, of every listener and towards every upstream', async () => {
    const path = (name: string): string => join(directory(), name);
    for (const [name, days] of [
      ['old', -1],
      ['new', 1],
    ] as const) {
      const issued = issueCertificate({ name, days });
      writeFileSync(path(`${name}.crt`), issued.certificate);
      writeFileSync(path(`${name}.key`), issued.privateKey);
    }
    const tls = (name: string): string =>
      `{ certificate: ${path(`${name}.crt`)}, private_key: ${path(`${name}.key`)} }`;
    const config = file(`xds: { tls: ${tls('old')} }
rest: { tls: ${tls('new')} }
admin: { tls: ${tls('old')} }
upstreams:
  - name: a
    ads: { endpoints: ["x:1"], tls: ${tls('old')} }
    siblings: { address: "y:1", tls: ${tls('old')} }
`);
    const { code, err } = await run(['--config', config]);
    expect(code).to.equal(2);
    const lines = err.split('\n').filter((line) => line.includes('has expired'));
    expect(lines.map((line) => line.slice(config.length).split(': ')[1])).to.deep.equal([
      'xds.tls.certificate',
      'admin.tls.certificate',
      'upstreams[0].ads.tls.certificate',
      'upstreams[0].siblings.tls.certificate',
    ]);
    expect(lines[0]).to.match(/old\.crt has expired: it was valid until \d{4}-/);
  });

  it('refuses principals and peer.*_san without xds.tls.ca, which match nobody', async () => {
    const path = file(`xds:
  address: "127.0.0.1:18000"
  authorization: { rules: [{ principals: ["spiffe://example.com/*"], allow: true }] }
upstreams: [{ name: a, ads: { endpoints: ["x:1"] } }]
parameters:
  - { key: team, from: peer.uri_san, trusted: true }
`);
    const why = 'matches no client: identities come from verified certificates, so set xds.tls.ca';
    expect(await run(['--config', path])).to.deep.equal({
      code: 2,
      out: '',
      err: `${path}:3:30: xds.authorization.rules[0].principals: ${why}
${path}:6:24: parameters[0].from: ${why}
${path}: 2 problems
`,
    });
  });

  it('refuses an upstream that is never used, which a relay only warns of', async () => {
    mkdirSync(join(directory(), 'resources'));
    const entry = `filesystem: { path: ${directory()}/resources }`;
    const path = file(`upstreams:\n  - { name: a, ${entry} }\n  - { name: b, ${entry} }\n`);
    const { code, err } = await run(['--config', path]);
    expect(code).to.equal(2);
    expect(err).to.include(`${path}:3:5: upstreams[1]: is never used: upstreams[0] comes first and serves`);
  });

  it('one name in two files of one upstream is refused where it claims the name; of two upstreams the first has it', async () => {
    const cluster = '{ "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", name: shop }';
    for (const [name, count] of [
      ['one', 1],
      ['two', 2],
    ] as const) {
      mkdirSync(join(directory(), name));
      for (let at = 0; at < count; at++)
        writeFileSync(join(directory(), name, `${at}.yaml`), `resources: [${cluster}]\n`);
    }
    const checked = (claim: string) =>
      run([
        '--config',
        file(
          `upstreams:\n  - { name: a, names: ["s*"], filesystem: { path: ${directory()}/one } }\n  - { name: b${claim}, filesystem: { path: ${directory()}/two } }\n`,
        ),
      ]);
    expect((await checked(', names: ["shop"]')).err).to.match(
      /two\/1\.yaml.* is refused: .*two\/0\.yaml has it already/,
    );
    expect(await checked(', types: [eds]')).to.include({ code: 0 });
    writeFileSync(join(directory(), 'two/1.yaml'), 'resources: []\n');
    expect(await checked('')).to.include({ code: 0 });
  });

  it('says all that is wrong with a resource file, each with line and column', async () => {
    mkdirSync(join(directory(), 'wrong'));
    const bad = join(directory(), 'wrong/clusters.yaml');
    const cluster = '"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster';
    writeFileSync(
      bad,
      `resources:
  - ${cluster}
    nam: one
    connect_timeout: 5
  - ${cluster}
  - ${cluster}
    name: good
  - ${cluster}
    name: good
  - "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
    ttl: 10s
    resource: { ${cluster}, name: mortal }
`,
    );
    const path = file(`upstreams: [{ name: files, filesystem: { path: ${directory()}/wrong } }]\n`);
    const { code, err } = await run(['--config', path]);
    expect(code).to.equal(2);
    const lines = err.trimEnd().split('\n');
    const places = [
      /:3:5: resources\[0\]\.nam: .*"nam"/,
      /:4:5: resources\[0\]\.connect_timeout: 5 is not a duration: use seconds, as in "5s"/,
      /:5:5: resources\[1\]: .*has no name/,
      /:8:5: resources\[3\]: .*"good" is in this file twice/,
      /:10:5: .*"mortal" has a ttl: it ends 10 s after the file is read/,
      /: warning: xds\.address: .*plaintext/,
      /: 5 problems$/,
    ];
    expect(lines).to.have.length(places.length);
    for (const [index, place] of places.entries()) expect(lines[index]).to.match(place);
    const { problems } = report.parse(JSON.parse((await run(['--config', path, '--json'])).out));
    expect(problems[1]).to.include({ file: bad, line: 4, column: 5 });
  });

  it('says all problems at once, certificates and resources too, whatever else is wrong', async () => {
    mkdirSync(join(directory(), 'refused'));
    const bad = join(directory(), 'refused/clusters.json');
    writeFileSync(bad, '{ "resources": 5 }');
    const path = file(`xds: { tls: { certificate: none.pem, private_key: none.key } }
upstreams:
  - { name: files, filesystem: { path: ${directory()}/refused } }
  - { name: cp, ads: { endpoint: ["x:1"] } }
cache: { persistence: { path: ${bad} } }
workers: many
`);
    const { code, err } = await run(['--config', path]);
    expect(code).to.equal(2);
    const places = err
      .split('\n')
      .map((line) => line.replace(`${directory()}/`, '').split(': ', 2).join(' '));
    expect(places).to.deep.equal([
      'config.yaml:1:28 xds.tls.certificate',
      'config.yaml:1:51 xds.tls.private_key',
      'config.yaml:4:5 upstreams[1]',
      'config.yaml:4:17 upstreams[1].ads.endpoints',
      'config.yaml:4:24 upstreams[1].ads.endpoint',
      'config.yaml:5:31 cache.persistence.path',
      'config.yaml:6:10 workers',
      'refused/clusters.json:1:3 resources',
      `${path} 8 problems`.replace(`${directory()}/`, ''),
      '',
    ]);
  });

  it('what has no effect is said whatever else is wrong, and no more than that', async () => {
    const path = file(`xds:
  address: "127.0.0.1:18000"
  tls: { certficate: x }
  authorization: { rules: [{ principals: ["spiffe://a/*"], allow: yes }, { principals: [], allow: true }] }
upstreams:
  - { name: a, ads: { endpoints: ["127.0.0.1:18000", "cp"] } }
limits: { max_request_bytes: 10, max_poll_bytes: 0 }
rollout: { bake: 11m, max_disconnects: many, waves: [{ percent: 1 }] }
parameters: [{ key: t, from: peer.uri_san }, { key: u, from: peer.san }]
`);
    const { code, err } = await run(['--config', path]);
    expect(code).to.equal(2);
    const lines = err
      .split('\n')
      .filter((line) => line.startsWith(`${path}:`) && !line.endsWith(' problems'));
    const said = lines.map((line) => line.slice(path.length + 1).split(': ', 3));
    expect(
      said.map(([place, at, what]) => [place, at, what?.split(' ', 3).join(' ')].join(' ')),
    ).to.deep.equal([
      '3:10 xds.tls.certficate unknown key "certficate"',
      '4:30 xds.authorization.rules[0].principals matches no client',
      '4:67 xds.authorization.rules[0].allow expected true or',
      '4:76 xds.authorization.rules[1].principals must have at',
      '6:35 upstreams[0].ads.endpoints[0] this is xds.address,',
      '6:54 upstreams[0].ads.endpoints[1] address "cp" must',
      '7:30 limits.max_request_bytes must be at',
      '7:50 limits.max_poll_bytes must be at',
      '8:18 rollout.bake a bake of',
      '8:40 rollout.max_disconnects expected a number,',
      '9:30 parameters[0].from matches no client',
      '9:62 parameters[1].from expected node.metadata.KEY.KEY…, node.metadata["KEY"],',
    ]);
  });

  it('with a list of authorities that is there, or not yet whole, identities match somebody', async () => {
    const path = file(`xds: { address: "127.0.0.1:18000", tls: { ca: none.pem } }
upstreams: [{ name: a, ads: { endpoints: ["cp:1"] } }]
parameters: [{ key: t, from: peer.uri_san }]
`);
    expect((await run(['--config', path])).err).not.to.match(/matches no client/);
  });

  it('where only files are wrong, rules that match no client and what is dangerous are said, too', async () => {
    const path = file(`xds: { tls: { certificate: none.pem, private_key: none.key } }
upstreams: [{ name: cp, ads: { endpoints: ["x:1"] } }]
parameters: [{ key: team, from: peer.uri_san }, { key: env, from: node.id, trusted: true }]
`);
    const { err } = await run(['--config', path]);
    for (const said of [
      /xds\.tls\.certificate: /,
      /parameters\[0\]\.from: matches no client/,
      /warning: parameters\[1\]/,
    ])
      expect(err).to.match(said);
  });

  it('prints no character that a terminal obeys, or that turns text around', async () => {
    const path = file('upstreams: []\n"evil\\u202e\\u009b31m\\e[2J": 1\n');
    const { code, err } = await run(['--config', path]);
    expect(code).to.equal(2);
    expect(err).to.include('evil');
    expect(err.replaceAll('\n', '')).not.to.match(/[\p{Cc}\p{Cf}]/u);
  });

  it('a TTL alone in a good file is refused, too', async () => {
    mkdirSync(join(directory(), 'mortal'));
    const bad = join(directory(), 'mortal/ttl.json');
    const cluster = { '@type': 'type.googleapis.com/envoy.config.cluster.v3.Cluster', name: 'mortal' };
    const wrapper = 'type.googleapis.com/envoy.service.discovery.v3.Resource';
    writeFileSync(bad, JSON.stringify({ resources: [{ '@type': wrapper, ttl: '2s', resource: cluster }] }));
    const path = file(`upstreams: [{ name: files, filesystem: { path: ${directory()}/mortal } }]\n`);
    const { code, err } = await run(['--config', path]);
    expect([code, err.includes(`${bad}:1:15: `)]).to.deep.equal([2, true]);
  });

  it('checks the files that a good configuration names', async () => {
    const path = file(`upstreams: [{ name: files, filesystem: { path: ${join(directory(), 'none')} } }]\n`);
    const { code, err } = await run(['--config', path]);
    expect(code).to.equal(2);
    expect(err).to.match(/config\.yaml:1:48: upstreams\[0\]\.filesystem\.path: .*none cannot be listed/);
    expect(err).to.match(/config\.yaml: 1 problem\n$/);
  });

  it('checks the resources below a path that a good configuration names', async () => {
    const bad = join(directory(), 'bad.json');
    writeFileSync(bad, '{\n"resources": 5\n}');
    const path = file(`upstreams: [{ name: files, filesystem: { path: ${directory()} } }]\n`);
    const { code, out, err } = await run(['--config', path]);
    expect([code, out]).to.deep.equal([2, '']);
    expect(err)
      .to.include(`${bad}:2:1: `)
      .and.to.match(/config\.yaml: \d problems?\n$/);
  });

  it('a file that is not there', async () => {
    const path = join(directory(), 'none.yaml');
    const { code, err } = await run(['--config', path]);
    expect(code).to.equal(2);
    expect(err).to.include(`${path}:1:1: cannot be read: there is no such file`);
  });

  for (const argv of [[], ['--confg', 'x'], ['--config'], ['stray']]) {
    it(`usage on stderr for: ${argv.join(' ') || '(nothing)'}`, async () => {
      const { code, out, err } = await run(argv);
      expect(code).to.equal(2);
      expect(out).to.equal('');
      expect(err).to.match(/\n\nUsage: distributary validate --config FILE \[--against URL /);
    });
  }

  for (const flag of ['--help', '-h']) {
    it(`${flag} prints the usage`, async () => {
      const { code, out, err } = await run([flag]);
      expect(code).to.equal(0);
      expect(out).to.match(/^Usage: distributary validate/);
      expect(err).to.equal('');
    });
  }
});
