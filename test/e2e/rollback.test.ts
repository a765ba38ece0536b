import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { when } from '../support/in-memory-relay.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { operate } from './support/rollout-state.ts';
import { Connections, type VariantClient } from './support/variant-client.ts';
import { writeVariants } from './support/variant-files.ts';

const history = z.object({
  revision: z.number(),
  changes: z.array(
    z.object({ revision: z.number(), type: z.string(), verdict: z.string(), reason: z.string() }),
  ),
});

describe('rollback', () => {
  let files: ResourceFiles;
  let stack: AsyncDisposableStack;
  let relay: RelayProcess;
  let client: VariantClient;

  beforeEach(() => {
    stack = new AsyncDisposableStack();
    files = stack.use(new ResourceFiles());
  });
  afterEach(() => stack.disposeAsync());

  async function start(config: object = {}): Promise<void> {
    relay = await RelayProcess.start({
      upstreams: [files.upstream],
      drain_timeout: '100ms',
      ...config,
    });
    const connections = new Connections(relay.xds);
    client = connections.open({ protocol: 'delta', node: { id: 'a', cluster: 'web' } });
    client.want('cds', { names: ['*'] });
  }

  async function end(): Promise<void> {
    client.close();
    await relay.stop();
  }

  const ask = (...argv: readonly string[]) => run(...argv, '--admin', `http://${relay.admin}`);
  const historyOf = async () => history.parse(JSON.parse((await ask('history', '--json')).out));
  const write = (...resources: readonly (readonly [string, string])[]): void =>
    files.write('cds', new Map(resources));

  async function reaches(revision: number): Promise<void> {
    await eventually(async () => {
      const last = (await historyOf()).revision;
      if (last < revision) throw new Error(`the last revision is ${last}`);
    });
  }

  /** A relay that persists has had shop 1, and has shop 2. */
  async function twoRevisions() {
    const directory = stack.use(temporaryDirectory());
    const persisted = { cache: { persistence: { path: directory.path } } };
    write(['shop', '1']);
    await start(persisted);
    await client.gets('cds', ['shop: 1']);
    write(['shop', '2']);
    await client.gets('cds', ['shop: 2']);
    await reaches(2);
    return persisted;
  }

  it('gives everybody what there was, whatever upstream says, until unfreeze', async () => {
    write(['shop', '1'], ['old', '1']);
    await start();
    await client.gets('cds', ['old: 1', 'shop: 1']);
    write(['shop', '2'], ['new', '1']);
    await client.gets('cds', ['new: 1', 'shop: 2']);
    await reaches(2);

    const refused = await ask('rollback', '--to', '7', '--reason', 'x');
    expect(refused.code).to.equal(1);
    expect(refused.err).to.match(/there is no revision 7: the last one is 2/);
    expect((await ask('rollback', '--to', '1')).code, 'without a reason').to.equal(2);
    const blank = await relay.rpc('distributary.admin.v1.AdminService/Rollback', { to: 1, reason: ' ' });
    expect(blank.status, 'a blank reason').to.equal(400);
    await client.gets('cds', ['new: 1', 'shop: 2']);

    const done = await ask('rollback', '--to', '1', '--reason', 'the new shop is slow');
    expect(done.code, done.err).to.equal(0);
    await client.gets('cds', ['old: 1', 'shop: 1']);
    const [newest] = (await historyOf()).changes;
    expect(newest).to.include({ revision: 3, verdict: 'RELEASED' });
    const reason = 'rollback to revision 1: the new shop is slow';
    expect(newest?.reason).to.equal(reason);
    const status = await ask('status');
    expect(status.out, 'the reason once, though many types are frozen').to.match(
      new RegExp(`^rollout: FROZEN for \\d+ s: ${reason}$`, 'm'),
    );
    await relay.says(/an operator has rolled back/);

    write(['shop', '3']);
    await eventually(async () => {
      const pending = await ask('diff', '--pending', '--type', 'cds');
      expect(pending.out)
        .to.match(/^changed +cds +shop$/m)
        .and.to.match(/^removed +cds +old$/m);
    });
    await reaches(4);
    await client.gets('cds', ['old: 1', 'shop: 1']);
    const waited = await ask('wait', '--timeout', '200ms', '--type', 'cds');
    expect(waited.code).to.equal(1);
    expect(waited.err).to.match(/shop +HELD/);
    const back = await ask('wait', '--timeout', '30s', '--revision', '3');
    expect(back.code, `everybody has the rollback, whatever waits behind it: ${back.err}`).to.equal(0);
    expect((await ask('diff', '--from', '1', '--to', '3')).out).to.equal('no differences');

    const unfrozen = await ask('unfreeze', '--reason', 'mended');
    expect(unfrozen.code, unfrozen.err).to.equal(0);
    await client.gets('cds', ['shop: 3']);
    await end();
  });

  it('what it has removed stays away until the gate opens, said anew and after a kill too', async () => {
    const directory = stack.use(temporaryDirectory());
    const persisted = { cache: { persistence: { path: directory.path } } };
    write(['shop', '1']);
    await start(persisted);
    await client.gets('cds', ['shop: 1']);
    write(['shop', '1'], ['late', '1']);
    await client.gets('cds', ['late: 1', 'shop: 1']);
    await reaches(2);
    expect((await ask('rollback', '--to', '1', '--reason', 'x')).code).to.equal(0);
    await client.gets('cds', ['shop: 1']);
    const pending = async (): Promise<string> => (await ask('diff', '--pending', '--type', 'cds')).out;
    await eventually(async () => expect(await pending()).to.match(/^added +cds +late$/m));
    write(['shop', '1']);
    await eventually(async () => expect(await pending()).to.equal('no differences'));
    write(['shop', '1'], ['late', '2']);
    await eventually(async () => expect(await pending()).to.match(/^added +cds +late$/m));
    expect(client.has('cds'), 'said anew').to.deep.equal(['shop: 1']);
    await eventually(async () => expect(await relay.metric('persistence_lag_seconds')).to.equal(0));
    relay.signal('SIGKILL');
    await relay.exited;

    await start(persisted);
    await client.gets('cds', ['shop: 1']);
    await eventually(async () => expect(await pending()).to.match(/^added +cds +late$/m));
    expect(client.has('cds'), 'after a kill').to.deep.equal(['shop: 1']);
    expect((await ask('unfreeze', '--reason', 'mended')).code).to.equal(0);
    await client.gets('cds', ['late: 2', 'shop: 1']);
    await end();
  });

  it('is on disk when it is answered, with what it was closed at: a kill changes nothing', async () => {
    const persisted = await twoRevisions();
    expect(await operate(relay, 'Rollback', { to: 1 })).to.deep.include({ status: 200 });
    relay.signal('SIGKILL');
    await relay.exited;
    await start(persisted);
    await client.gets('cds', ['shop: 1']);
    await end();
  });

  /** Of the parameter `env`. */
  const open = (env: string): VariantClient => {
    const connections = stack.use(new Connections(relay.xds));
    const opened = connections.open({ protocol: 'delta', node: { id: env, metadata: { env } } });
    opened.want('cds');
    return opened;
  };
  const byEnv = [{ key: 'env', from: 'node.metadata.env' }];

  it('a variant that it has removed stays away until the gate opens, after a restart too', async () => {
    const directory = stack.use(temporaryDirectory());
    const config = {
      upstreams: [files.upstream],
      parameters: byEnv,
      cache: { persistence: { path: directory.path } },
      drain_timeout: '100ms',
    };
    const has = (content: string, ...envs: readonly string[]): void =>
      writeVariants(
        files,
        'cds',
        envs.map((env) => ['shop', content, when({ env })] as const),
      );
    has('1', 'prod');
    relay = await RelayProcess.start(config);
    const prod = open('prod');
    await prod.gets('cds', ['shop: 1']);
    const test = open('test');
    await eventually(async () => expect(await relay.clients()).to.have.length(2));
    // Upstream adds it by itself: it knows that there was nothing for the clients of `test`.
    has('1', 'prod', 'test');
    await test.gets('cds', ['shop: 1']);
    await reaches(2);
    expect((await ask('rollback', '--to', '1', '--reason', 'x')).code).to.equal(0);
    await test.gets('cds', []);
    for (const one of [prod, test]) one.close();
    await relay.stop();

    has('2', 'prod', 'test');
    relay = await RelayProcess.start(config);
    const again = ['prod', 'test'].map(open);
    const pending = async (): Promise<string> => (await ask('diff', '--pending', '--type', 'cds')).out;
    await eventually(async () => expect(await pending()).to.match(/^changed +cds +shop$/m));
    await eventually(async () => expect(await relay.metric('cache_variants', 'cds')).to.equal(2));
    await again[0]?.gets('cds', ['shop: 1']);
    await eventually(async () => {
      const states = (await relay.clients()).flatMap(({ types }) => types.map(({ state }) => state));
      expect(states.toSorted()).to.deep.equal(['MISSING', 'SYNCED']);
    });
    expect(again[1]?.has('cds')).to.deep.equal([]);
    expect((await ask('unfreeze', '--reason', 'mended')).code).to.equal(0);
    for (const one of again) await one.gets('cds', ['shop: 2']);
    for (const one of again) one.close();
    await relay.stop();
  });

  for (const [protocol, workers] of cases<readonly [string, number]>(
    ['DELTA', 0],
    ['SOTW', 0],
    ['DELTA', 2],
    ['SOTW', 2],
  ))
    it(`takes nothing from clients with other parameters that have come, or come back, since (${protocol}, workers: ${workers})`, async () => {
      const directory = stack.use(temporaryDirectory());
      const plane = stack.use(await ModelPlane.start());
      const config = {
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address], protocol } }],
        parameters: byEnv,
        cache: { persistence: { path: directory.path } },
        drain_timeout: '100ms',
        workers,
      };
      plane.set('cds', { shop: '1', cart: '1' });
      relay = await RelayProcess.start(config);
      const prod = open('prod');
      await prod.gets('cds', ['cart: 1', 'shop: 1']);
      plane.set('cds', { shop: '2', cart: '1' });
      await prod.gets('cds', ['cart: 1', 'shop: 2']);
      await reaches(2);
      const batch = open('batch');
      await batch.gets('cds', ['cart: 1', 'shop: 2']);
      await reaches(3);
      const nothing = await ask('rollback', '--to', '2', '--reason', 'x');
      expect(nothing.out).to.match(/^rolled back to revision 2: 0 resources changed/);
      for (const one of [prod, batch]) one.close();
      await relay.stop();

      relay = await RelayProcess.start(config);
      const again = ['prod', 'batch'].map(open);
      for (const one of again) await one.gets('cds', ['cart: 1', 'shop: 2']);
      expect((await ask('rollback', '--to', '1', '--reason', 'x')).code).to.equal(0);
      await again[0]?.gets('cds', ['cart: 1', 'shop: 1']);
      expect(again[1]?.has('cds')).to.deep.equal(['cart: 1', 'shop: 2']);
      for (const one of again) one.close();
      await relay.stop();
    });

  it('to before a reload that changes parameters is refused, after a restart too: it would be for nobody', async () => {
    const directory = stack.use(temporaryDirectory());
    const plane = stack.use(await ModelPlane.start());
    const by = (key: string) => ({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
      parameters: [{ key, from: 'node.metadata.env' }],
      cache: { persistence: { path: directory.path } },
      drain_timeout: '100ms',
    });
    const isRefused = async (one: VariantClient): Promise<void> => {
      const refused = await ask('rollback', '--to', '1', '--reason', 'x');
      expect(refused.err).to.match(/revision 1 has expired: .* parameters have changed since/);
      await one.gets('cds', ['shop: 2']);
    };
    plane.set('cds', { shop: '1' });
    relay = await RelayProcess.start(by('env'));
    client = open('prod');
    await client.gets('cds', ['shop: 1']);
    plane.set('cds', { shop: '2' });
    await client.gets('cds', ['shop: 2']);
    await reaches(2);
    await relay.reconfigure(by('environment'));
    await reaches(3);
    await isRefused(client);
    await end();

    relay = await RelayProcess.start(by('environment'));
    client = open('prod');
    await client.gets('cds', ['shop: 2']);
    await isRefused(client);
    await end();
  });

  it('that changes nothing is in the history all the same, with its revision, after a restart too', async () => {
    const directory = stack.use(temporaryDirectory());
    const persisted = { cache: { persistence: { path: directory.path } } };
    write(['shop', '1']);
    await start(persisted);
    await client.gets('cds', ['shop: 1']);
    await reaches(1);
    const done = await ask('rollback', '--to', '1', '--reason', 'to be sure');
    expect(done.code, done.err).to.equal(0);
    expect(done.out).to.equal(
      'rolled back to revision 1: 0 resources changed (revision 2); frozen until unfreeze',
    );
    const said = {
      revision: 2,
      type: 'cds',
      verdict: 'RELEASED',
      reason: 'rollback to revision 1: to be sure',
    };
    expect((await historyOf()).changes[0]).to.deep.equal(said);
    const waited = await ask('wait', '--revision', '2', '--timeout', '1s');
    expect(waited.err).to.match(/revision 2 changed nothing/);
    await end();

    await start(persisted);
    expect((await historyOf()).changes[0]).to.deep.equal(said);
    await end();
  });

  it('reaches back over a restart, where the cache is persisted', async () => {
    const persisted = await twoRevisions();
    await end();

    await start(persisted);
    await client.gets('cds', ['shop: 2']);
    expect((await historyOf()).revision).to.equal(2);
    write(['shop', '3']);
    await client.gets('cds', ['shop: 3']);
    await reaches(3);
    const done = await ask('rollback', '--to', '1', '--reason', 'back');
    expect(done.code, done.err).to.equal(0);
    await client.gets('cds', ['shop: 1']);
    await end();
  });

  it('says what it cannot do where no bodies are kept, and changes nothing', async () => {
    write(['shop', '1']);
    await start({ history: false });
    await client.gets('cds', ['shop: 1']);
    write(['shop', '2']);
    await client.gets('cds', ['shop: 2']);
    await reaches(2);
    const refused = await ask('rollback', '--to', '1', '--reason', 'back');
    expect(refused.code).to.equal(1);
    expect(refused.err).to.match(
      /the state at revision 1 was not kept: the configuration has history: false/,
    );
    await client.gets('cds', ['shop: 2']);
    const readOnly = await ask('rollback', '--to', '1', '--type', 'eds', '--reason', 'back');
    expect(readOnly.err).to.match(/eds is not gated/);
    await end();
  });

  it('of what has expired, or was never persisted, is refused: nothing changes, and nothing is frozen', async () => {
    const directory = stack.use(temporaryDirectory());
    const small = { cache: { persistence: { path: directory.path } }, history: { max_bytes: 4_000 } };
    const unchanged = async (content: string): Promise<void> => {
      await client.gets('cds', [`shop: ${content}`]);
      expect((await ask('unfreeze', '--reason', 'x')).err).to.include('nothing is frozen');
    };
    write(['shop', '0']);
    files.write('sds', new Map([['key', '0']]));
    await start(small);
    client.want('sds', { names: ['key'] });
    await client.gets('cds', ['shop: 0']);
    await client.gets('sds', ['key: 0']);
    for (let content = 1; content <= 10; content++) {
      write(['shop', String(content)]);
      await client.gets('cds', [`shop: ${content}`]);
    }
    await reaches(12);
    for (const argv of [
      ['rollback', '--to', '1', '--reason', 'x'],
      ['diff', '--from', '1', '--to', '12'],
    ]) {
      const refused = await ask(...argv);
      expect(refused.code, argv.join(' ')).to.equal(1);
      expect(refused.err).to.match(/revision 1 has expired: .*\(history\.max_bytes, history\.max_age\)$/);
    }
    await unchanged('10');
    files.write('sds', new Map([['key', '1']]));
    await client.gets('sds', ['key: 1']);
    await reaches(13);
    await end();

    await start(small);
    client.want('sds', { names: ['key'] });
    await client.gets('sds', ['key: 1']);
    for (const argv of [[], ['--type', 'sds']]) {
      const secrets = await ask('rollback', '--to', '12', ...argv, '--reason', 'x');
      expect(secrets.code, secrets.out).to.equal(1);
      expect(secrets.err).to.match(
        /the state of sds at revision 12 is not known: secrets are not kept across a restart/,
      );
    }
    await unchanged('10');
    await client.gets('sds', ['key: 1']);
    const clusters = await ask('rollback', '--to', '11', '--type', 'cds', '--reason', 'x');
    expect(clusters.code, clusters.err).to.equal(0);
    await client.gets('cds', ['shop: 9']);
    await client.gets('sds', ['key: 1']);
    await end();
  });

  it('to the first revision takes back no other type that files had at the start', async () => {
    write(['shop', '1']);
    files.write('lds', new Map([['web', '1']]));
    files.write('rds', new Map([['routes', '1']]));
    await start();
    client.want('lds', { names: ['*'] });
    client.want('rds', { names: ['routes'] });
    await client.gets('rds', ['routes: 1']);
    files.write('rds', new Map([['routes', '2']]));
    await client.gets('rds', ['routes: 2']);
    await reaches(4);
    const added = await ask('diff', '--from', '1', '--to', '3');
    const what = 'CHANGE  TYPE  NAME\nadded   lds   web\nadded   rds   routes';
    expect(added.out, 'what history calls added').to.equal(what);
    const done = await ask('rollback', '--to', '1', '--reason', 'x');
    expect(done.code, done.err).to.equal(0);
    await client.gets('rds', ['routes: 1']);
    await client.gets('lds', ['web: 1']);
    await client.gets('cds', ['shop: 1']);
    await end();
  });

  it('removes nothing of which nobody had asked yet at that revision', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { shop: '1' });
    plane.set('rds', { routes: '1' });
    const upstreams = [{ name: 'central', ads: { endpoints: [plane.address] } }];
    relay = stack.use(await RelayProcess.start({ upstreams }));
    using pool = new ClientPool(relay.xds, 1);
    const asking = pool.open('delta', 'a');
    asking.subscribe('cds');
    await asking.gets('cds', { shop: '1' });
    plane.set('cds', { shop: '2' });
    await asking.gets('cds', { shop: '2' });
    asking.subscribe('rds', ['routes']);
    await asking.gets('rds', { routes: '1' });
    plane.set('rds', { routes: '2' });
    await asking.gets('rds', { routes: '2' });
    await reaches(4);
    const done = await ask('rollback', '--to', '1', '--reason', 'x');
    expect(done.code, done.err).to.equal(0);
    await asking.gets('cds', { shop: '1' });
    await asking.gets('rds', { routes: '1' });
  });
});
