import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { commands } from '../../src/commands/commands.ts';
import { when } from '../support/in-memory-relay.ts';
import { runIn } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { Process } from './support/process.ts';
import { distributary, RelayProcess } from './support/relay.ts';
import { Connections } from './support/variant-client.ts';
import { writeVariants } from './support/variant-files.ts';

/** With this in its environment; COLUMNS and DISTRIBUTARY_ADMIN of the tests' own terminal are no part of it. */
async function run(env: Readonly<Record<string, string>>, ...argv: readonly string[]) {
  const ran = await runIn(env, ...argv);
  return { ...ran, lines: ran.out.split('\n') };
}

/** The same as a user runs it, in a process of its own. */
async function runProcess(env: Readonly<Record<string, string>>, ...argv: readonly string[]) {
  const child = new Process({ ...distributary(...argv), env: { DISTRIBUTARY_ADMIN: '', ...env } });
  const code = await child.exited;
  return { code, lines: [...child.lines], out: child.lines.join('\n'), err: child.errors.join('\n') };
}

const version = z.object({
  resources: z.array(z.object({ variants: z.array(z.object({ content: z.string() })) })),
});
const longName = `${'outbound_'.repeat(7)}shop`;

describe('commands at a terminal', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;
  let connections: Connections;
  let home: string;

  before(async () => {
    files = new ResourceFiles();
    writeVariants(files, 'eds', [
      ['shop', 'prod', when({ env: 'prod' })],
      ['shop', 'test', when({ env: 'test' })],
    ]);
    files.writeText(
      'clusters.yaml',
      `resources: [{ "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: ${longName} }]`,
    );
    relay = await RelayProcess.start({
      upstreams: [files.upstream],
      parameters: [{ key: 'env', from: 'node.metadata.env' }],
    });
    connections = new Connections(relay.xds);
    home = mkdtempSync(join(tmpdir(), 'contexts-'));
    const picky = connections.open({
      protocol: 'delta',
      node: { id: `picky-${'x'.repeat(60)}`, metadata: { env: 'prod' } },
      accepts: () => false,
    });
    picky.want('eds', { names: ['shop'] });
    picky.want('cds', { names: ['*'] });
    await eventually(async () => {
      const { out } = await run(
        { DISTRIBUTARY_ADMIN: `http://${relay.admin}` },
        'clients',
        '--state',
        'ERROR',
      );
      expect(out).to.include('not to my taste');
    });
  });
  after(async () => {
    connections[Symbol.dispose]();
    await relay.stop();
    files[Symbol.dispose]();
    rmSync(home, { recursive: true });
  });

  const here = () => ({ DISTRIBUTARY_ADMIN: `http://${relay.admin}`, COLUMNS: '80' });
  /** What is to be copied stays whole. */
  const tooWide = (lines: readonly string[]) =>
    lines.filter((line) => line.length > 80 && !line.startsWith('  $ '));

  it('the help of each command fits 80 columns', async () => {
    for (const { name } of commands) {
      const { code, lines } = await run({}, name, '--help');
      expect([name, code, tooWide(lines)]).to.deep.equal([name, 0, []]);
    }
    const { code, lines } = await runProcess({}, '--help');
    expect([code, tooWide(lines)]).to.deep.equal([0, []]);
  });

  for (const argv of [
    ['status'],
    ['clients'],
    ['resources'],
    ['explain', '--type', 'eds', '--name', 'shop', '--param', 'env=prod'],
    ['history'],
  ]) {
    it(`${argv.join(' ')}: its table fits, -o wide has all of it, and -o json and yaml say the same`, async () => {
      const { code, lines, out } = await run(here(), ...argv);
      expect([code, tooWide(lines)], out).to.deep.equal([0, []]);
      const wide = await run(here(), ...argv, '-o', 'wide');
      expect(Math.max(...wide.lines.map(({ length }) => length))).to.be.greaterThan(80);
      const [json, yaml, short] = await Promise.all([
        run(here(), ...argv, '-o', 'json'),
        run(here(), ...argv, '-o', 'yaml'),
        run(here(), ...argv, '--json'),
      ]);
      const keys = Object.keys(z.record(z.string(), z.unknown()).parse(JSON.parse(json.out)));
      expect(Object.keys(z.record(z.string(), z.unknown()).parse(parse(yaml.out)))).to.deep.equal(keys);
      expect(Object.keys(z.record(z.string(), z.unknown()).parse(JSON.parse(short.out)))).to.deep.equal(keys);
    });
  }

  it('a resource has one version in resources, get and explain: that of its content', async () => {
    const listed = await run(here(), 'resources', '--type', 'eds', '-o', 'json');
    const [content = ''] =
      version.parse(JSON.parse(listed.out)).resources[0]?.variants.map((one) => one.content) ?? [];
    expect(content).to.match(/^[0-9a-f]{16}$/);
    const table = await run(here(), 'resources', '--type', 'eds');
    expect(table.out).to.include(content);
    for (const command of ['get', 'explain']) {
      const { out } = await run(here(), command, '--type', 'eds', '--name', 'shop');
      expect(out).to.include(content);
    }
  });

  for (const words of [['status', '--watch'], ['completion', 'bash'], ['--help']]) {
    it(`${words.join(' ')} ends without a word when nobody reads it any more, as with head`, async () => {
      const { command, args } = distributary(...words);
      const child = spawn(command, args, {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, DISTRIBUTARY_ADMIN: `http://${relay.admin}` },
      });
      child.stdout.destroy();
      const [err] = await Promise.all([text(child.stderr), once(child, 'exit')]);
      expect([child.exitCode, err]).to.deep.equal([0, '']);
    });
  }

  it('where no context can be kept, says so and ends', async function () {
    if (process.platform !== 'linux') this.skip();
    const { code, err } = await runProcess(
      { XDG_CONFIG_HOME: '/proc/nowhere' },
      ...['context', 'add', 'here', '--admin', 'http://127.0.0.1:1'],
    );
    expect(code).to.equal(1);
    expect(err).to.include('/proc/nowhere/distributary/contexts.json cannot be written');
  });

  it('asks the relay of the context; the environment wins over it, and flags over both', async () => {
    const nowhere = 'http://127.0.0.1:1';
    const context = { XDG_CONFIG_HOME: home };
    const added = await run(context, 'context', 'add', 'here', '--admin', `http://${relay.admin}`);
    expect([added.code, added.out]).to.deep.equal([0, 'added here, now in use']);
    expect((await run(context, 'context', 'add', 'away', '--admin', nowhere)).out).to.equal('added away');
    expect((await runProcess(context, 'status')).code).to.equal(0);
    expect((await runProcess({ ...context, DISTRIBUTARY_ADMIN: nowhere }, 'status')).err).to.include(nowhere);
    const both = { ...context, DISTRIBUTARY_ADMIN: nowhere };
    expect((await run(both, 'status', '--admin', `http://${relay.admin}`)).code).to.equal(0);
    expect((await run(context, 'context', 'use', 'away')).code).to.equal(0);
    expect((await run(context, 'status')).err).to.include(nowhere);
    expect((await run(context, 'context', 'list')).out).to.match(/^\* +away +http:\/\/127\.0\.0\.1:1$/m);
    for (const unknown of ['nobody', 'toString'])
      expect((await run(context, 'context', 'use', unknown)).code, unknown).to.equal(2);
    const listed = (await run(context, 'context', 'list', '-o', 'json')).out;
    expect(JSON.parse(listed)).to.have.nested.property('contexts[1].current', true);
    expect((await run(context, 'context', 'list', '--json')).out).to.equal(listed);
    expect((await run(context, 'context', 'list', '-o', 'yaml')).out).to.match(
      /^contexts:\n {2}- name: here\n/,
    );
    expect((await run(context, 'context', 'list', '-o', 'wide')).out).to.match(
      /CONTEXT +ADMIN +CERT +KEY +CA$/m,
    );
    expect((await run(context, 'context', 'use', 'here', '-o', 'json')).code).to.equal(2);
  });
});
