import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { faultyNode, outdatedNode } from '../../src/commands/node-version.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { RelayProcess } from '../e2e/support/relay.ts';

const root = join(import.meta.dirname, '../..');
const read = (path: string) => readFileSync(join(root, path), 'utf8');

const manifest = z
  .object({
    license: z.string(),
    bin: z.record(z.string(), z.string()),
    files: z.array(z.string()),
    engines: z.object({ node: z.string() }),
    scripts: z.record(z.string(), z.string()),
    optionalDependencies: z.record(z.string(), z.string()),
  })
  .parse(JSON.parse(read('package.json')));

const lock = z
  .object({
    packages: z.record(
      z.string(),
      z.object({
        version: z.string(),
        license: z.string().optional(),
        dev: z.boolean().default(false),
        hasInstallScript: z.boolean().default(false),
        integrity: z.string().optional(),
        optional: z.boolean().default(false),
        os: z.union([z.string(), z.array(z.string())]).optional(),
        optionalDependencies: z.record(z.string(), z.string()).default({}),
        resolved: z.string().optional(),
      }),
    ),
  })
  .parse(JSON.parse(read('package-lock.json')));

const packages = Object.entries(lock.packages).filter(([path]) => path !== '');
/** What the build bundles into dist/, and the packages that bring Node. */
const partOfIt = packages.filter(([path, { dev }]) => !dev || path.includes('/@opentelemetry/'));
const permissive = ['MIT', 'ISC', '0BSD', 'BSD-2-Clause', 'BSD-3-Clause', 'Apache-2.0', 'BlueOak-1.0.0'];

describe('the package', () => {
  it('installs the command distributary', () => {
    expect(manifest.bin).to.deep.equal({ distributary: 'dist/main.js' });
  });

  it('carries what the command reads at run time', () => {
    expect(manifest.files).to.include.members(['dist', 'proto/envoy-api.binpb.zst', 'deploy']);
    expect(existsSync(join(root, 'proto/envoy-api.binpb.zst'))).to.equal(true);
  });

  it('carries the runbooks that its alerts lead to, and the schema of the configuration', () => {
    const options = { cwd: root, encoding: 'utf8' } as const;
    const listed = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], options);
    const [packed] = z
      .array(z.object({ files: z.array(z.object({ path: z.string() })) }))
      .parse(JSON.parse(listed));
    const paths = packed?.files.map(({ path }) => path) ?? [];
    const alerts = read('deploy/observability/alerts.yaml');
    const runbooks = Array.from(alerts.matchAll(/runbook_url: (\S+)/g), ([, path]) => path);
    expect(runbooks).to.not.be.empty;
    expect(paths).to.include.members([...runbooks, 'docs/runbooks/README.md', 'config.schema.json']);
    expect(paths.filter((path) => /^(src|test|bench|build|scripts)\//.test(path))).to.deep.equal([]);
  });

  it('is under the Apache License 2.0', () => {
    expect(manifest.license).to.equal('Apache-2.0');
    expect(read('LICENSE')).to.contain('Apache License');
  });

  it('brings a Node of its own that fits engines', () => {
    const [major = 0, minor = 0] = manifest.engines.node.replace('>=', '').split('.').map(Number);
    for (const version of Object.values(manifest.optionalDependencies)) {
      const [ownMajor = 0, ownMinor = 0] = version
        .replace(/^[^0-9]*/, '')
        .split('.')
        .map(Number);
      expect(ownMajor).to.be.at.least(major);
      if (ownMajor === major) expect(ownMinor).to.be.at.least(minor);
    }
    const [runningMajor = 0] = process.versions.node.split('.').map(Number);
    expect(runningMajor, 'npm scripts run on that Node').to.be.at.least(major);
  });

  it('says which Node it needs where that is too old, and it is the one of engines', () => {
    const { node } = manifest.engines;
    for (const old of ['18.20.8', '22.21.0', '24.11.9']) {
      expect(outdatedNode(old, '/usr/bin/node')).to.equal(
        `distributary needs Node.js ${node.replace('>=', '')} or newer; /usr/bin/node is ${old}`,
      );
    }
    for (const fit of [`${node.replace('>=', '')}.0`, '25.0.0', process.versions.node])
      expect(outdatedNode(fit, '/usr/bin/node')).to.equal(undefined);
  });

  it('knows releases of Node with faults of high severity, and says so at the start', async () => {
    for (const old of ['26.0.0', '26.10.0', '26.12.1', '26.13.0'])
      expect(faultyNode(old)).to.include('26.13.1');
    for (const fit of ['26.13.1', '26.14.0', '27.0.0']) expect(faultyNode(fit)).to.equal(undefined);
    const known = faultyNode(process.versions.node);
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'files', filesystem: { path: join(root, 'deploy/demo/resources') } }],
    });
    await eventually(() => {
      const start = relay.log.find(({ message }) => message === 'the relay starts');
      expect(start).not.to.equal(undefined);
      expect(JSON.stringify(start).includes('Node.js ')).to.equal(known !== undefined);
    });
  });

  it('reads no other module before it has looked at the version of Node', () => {
    const imports = Array.from(
      read('src/main.ts').matchAll(/^import .* from '(.+)';$/gm),
      ([, path]) => path,
    );
    expect(imports).to.deep.equal(['./commands/node-version.ts']);
    expect(read('src/commands/node-version.ts')).to.not.match(/^import /m);
  });

  it('names only scripts that exist', () => {
    const files = Object.values(manifest.scripts).flatMap(
      (script) => script.match(/\b(scripts|bench)\/\S+\.ts/g) ?? [],
    );
    expect(files).to.not.be.empty;
    for (const file of files) expect(existsSync(join(root, file)), file).to.equal(true);
  });
});

describe('what is part of it', () => {
  it('has licences that allow it', () => {
    for (const [path, { license = 'none' }] of partOfIt) {
      const names = license.replace(/[()]/g, '').split(/ AND | OR /);
      expect(permissive, `${path}: ${license}`).to.include.members(names);
    }
  });

  it('needs no install script, as npm may block them', () => {
    const dispensable = 'node_modules/protobufjs'; // its script only warns about version ranges
    for (const [path, { hasInstallScript }] of partOfIt) {
      if (path !== dispensable) expect(hasInstallScript, path).to.equal(false);
    }
  });

  it('is pinned by content and not by the address of a registry', () => {
    for (const [path, { integrity, resolved, optional, os }] of packages) {
      // Binaries for other platforms than the one that wrote the lock file.
      const elsewhere = optional && os !== undefined && integrity === undefined;
      if (!elsewhere) expect(integrity, path).to.match(/^sha512-/);
      expect(resolved, path).to.equal(undefined);
    }
  });

  it('is locked for every platform, or npm ci refuses on all of them', () => {
    const locked = new Set(packages.map(([path]) => path.slice(path.lastIndexOf('node_modules/') + 13)));
    for (const [path, { optionalDependencies }] of packages) {
      for (const name of Object.keys(optionalDependencies))
        expect(locked.has(name), `${path}: ${name}`).to.equal(true);
    }
  });
});

describe('the tests', () => {
  it('lie where what they test lies below src/', () => {
    const folders = new Set(globSync('src/*/', { cwd: root }).map((path) => path.split(/[\\/]/)[1]));
    const others = [
      'attacks',
      'bench',
      'deploy',
      'docs',
      'e2e',
      'fuzz',
      'long',
      'memory',
      'observability',
      'project',
      'relay', // of the files in src/ itself
      'run',
      'scenarios',
      'simulator',
      'support',
      'tenants',
    ];
    for (const path of globSync('test/*/', { cwd: root })) {
      const folder = path.split(/[\\/]/)[1];
      expect([...folders, ...others], `test/${folder}`).to.include(folder);
    }
  });
});
