import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { z } from 'zod';
import { when } from '../support/in-memory-relay.ts';
import { ownPort } from '../support/ports.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { isOver, kindsOf } from './support/problems.ts';
import { outcome, signalTo } from './support/process.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { distributary, type RelayConfig, RelayProcess } from './support/relay.ts';
import { notTyped, Operator, terminalFor, typeRunbook } from './support/runbook.ts';
import { type VariantOf, writeVariants } from './support/variant-files.ts';

const parameters = [
  { key: 'env', from: 'node.id', pattern: '^([a-z]+)-' },
  { key: 'region', from: 'node.id', pattern: '^[a-z]+-([a-z]+)-' },
];
const workers = z.object({ workers: z.array(z.object({ pid: z.number(), listening: z.boolean() })) });

/** A relay over files, with clients that reject what begins with "bad", and an operator. */
async function start(more: Partial<RelayConfig> = {}) {
  const stack = new AsyncDisposableStack();
  const files = stack.use(new ResourceFiles());
  const listeners = (...variants: readonly VariantOf[]): void => writeVariants(files, 'lds', variants);
  listeners(['web', 'good', undefined]);
  const config = { upstreams: [files.upstream], parameters, ...more };
  const relay = stack.use(await RelayProcess.start(config));
  const pool = stack.use(new ClientPool(relay.xds, 1));
  const join = (id: string) => {
    const client = pool.open('delta', id);
    client.rejects = ({ resources }) =>
      resources.get('web')?.startsWith('bad') === true ? 'no such filter' : undefined;
    client.subscribe('lds', ['web']);
    return client;
  };
  const open = async (id: string) => {
    const client = join(id);
    await client.gets('lds', { web: 'good' });
    return client;
  };
  const operator = stack.use(await Operator.at(relay));
  return {
    config,
    relay,
    listeners,
    join,
    open,
    operator,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

async function worker(relay: RelayProcess) {
  const { body } = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
  const [first] = workers.parse(JSON.parse(body)).workers;
  if (first?.listening !== true) throw new Error('no worker listens');
  return first;
}

/** Who is refused is so at once: then it is too early, and another one asks. */
async function isServed(client: RecordingClient): Promise<void> {
  await eventually(() => {
    if (client.status === undefined && client.has('lds')['web'] === undefined)
      throw new Error('neither served nor refused');
  });
  expect([client.status, client.has('lds')]).to.deep.equal([undefined, { web: 'good' }]);
}

const nineRemovals = {
  runbook: 'removals-held',
  kind: 'removals_held',
  check: 2,
  says: /^9 removals of cds from central are held back/,
  metric: ['held_removals', 'upstream="central"', (value: number) => value === 9],
  set: { UPSTREAM: 'central', TYPE: 'cds' },
} as const;

describe('what is wrong is said everywhere, and its runbook ends it: the rest', function () {
  this.timeout(600_000);

  it('variants that match the same parameters, until they exclude each other', async () => {
    await using world = await start();
    await world.open('prod-eu-1');
    const prod = ['web', 'better', when({ env: 'prod' })] as const;
    world.listeners(prod, ['web', 'other', when({ region: 'eu' })]);
    await world.operator.rehearse({
      runbook: 'ambiguous-variants',
      kind: 'ambiguous',
      check: 1,
      says: /^1 lookup of lds matches several variants/,
      metric: ['ambiguous_matches_total', 'type="lds"', (value) => value > 0],
      set: { TYPE: 'lds', NAME: 'web' },
      mends: () => world.listeners(prod, ['web', 'other', when({ env: 'test', region: 'eu' })]),
    });
  });

  it('a configuration with a warning, until it is changed', async () => {
    await using world = await start();
    const [first] = parameters;
    world.relay.configure({ ...world.config, parameters: [{ ...first, trusted: true }] });
    await world.operator.rehearse({
      runbook: 'configuration-dangerous',
      kind: 'configuration_dangerous',
      check: 1,
      says: /the rule for "env" is trusted/,
      set: { FILE: world.relay.file },
      mends: () => world.relay.configure(world.config),
    });
  });

  it('what was discarded, until the control plane takes it back', async () => {
    await using world = await start({ rollout: { canary: { percent: 5 }, bake: '1s', mode: 'MANUAL' } });
    await world.open('prod-eu-1');
    world.listeners(['web', 'worse', undefined]);
    await eventually(async () => {
      const { status } = await world.relay.rpc('distributary.admin.v1.AdminService/Discard', {
        reason: 'it is slow',
      });
      expect(status).to.equal(200);
    });
    await world.operator.rehearse({
      runbook: 'discarded',
      kind: 'discarded',
      check: 1,
      says: /^A discarded change is still what the upstream sends: 1 name \(lds\) of files; reason: it is slow; over when/,
      metric: ['discarded_names', '', (value) => value === 1],
      mends: () => world.listeners(['web', 'good', undefined]),
    });
  });

  it('a freeze that was forgotten, until it is ended', async () => {
    await using world = await start();
    const client = await world.open('prod-eu-1');
    await world.relay.rpc('distributary.admin.v1.AdminService/Freeze', { type: 'lds', reason: 'incident 7' });
    world.listeners(['web', 'better', undefined]);
    await world.operator.rehearse({
      runbook: 'frozen',
      kind: 'frozen',
      check: 1,
      says: /^Frozen: lds: incident 7/,
      metric: ['frozen', '', (value) => value === 1],
    });
    await client.gets('lds', { web: 'better' });
  });

  it('a client that does not answer, until it does', async () => {
    await using world = await start();
    const client = await world.open('prod-eu-1');
    client.answers = false;
    world.listeners(['web', 'better', undefined]);
    await eventually(async () => expect(await kindsOf(world.relay)).to.include('clients_silent'), {
      timeout: 90_000,
    });
    await world.operator.rehearse({
      runbook: 'clients-silent',
      kind: 'clients_silent',
      check: 1,
      says: /^1 client with env=prod, region=eu has not acknowledged lds/,
      metric: ['downstream_unacknowledged', 'type="lds"', (value) => value === 1],
      set: { NODE: 'prod-eu-1' },
      mends: () => client.answer('lds', client.said.at(-1)?.nonce ?? ''),
    });
  });

  it('changes that are rejected again and again, until they are good', async () => {
    await using world = await start();
    const client = await world.open('prod-eu-1');
    for (let count = 1; count <= 11; count++) {
      world.listeners(['web', `bad ${count}`, undefined]);
      await eventually(() => expect(client.said.at(-1)?.resources.get('web')).to.equal(`bad ${count}`));
    }
    await world.operator.rehearse({
      runbook: 'changes-late',
      kind: 'changes_late',
      check: 2,
      says: /% of the changes in the last 10 minutes were late or rejected: .* 11 rejected, of 1[1-3]$/,
      mends: () => world.listeners(['web', 'better', undefined]),
      isOver: async () => expect(await world.relay.metric('downstream_rejecting')).to.equal(0),
    });
  });

  it('a change that is held, until it is discarded, and another one until it is released', async () => {
    await using world = await start({ rollout: { canary: { percent: 1 }, bake: '1s' } });
    await world.open('prod-eu-1');
    const other = await world.open('prod-eu-2');
    const held = {
      runbook: 'change-held',
      kind: 'change_held',
      check: 2,
      says: /^A change is held: .*no such filter/,
      metric: ['rollout_state', 'state="HELD"', (value: number) => value === 1],
    } as const;
    world.listeners(['web', 'bad 1', undefined]);
    await world.operator.rehearse({ ...held, leaves: /release/ });
    expect(other.has('lds')).to.deep.equal({ web: 'good' });
    world.listeners(['web', 'bad 2', undefined]);
    await world.operator.rehearse({ ...held, leaves: /discard/ });
    await eventually(() => expect(other.said.at(-1)?.resources.get('web')).to.equal('bad 2'));
  });

  it('removals that are held back, until they are released', async () => {
    await using plane = await ModelPlane.start();
    const all = Object.fromEntries(Array.from({ length: 10 }, (_, index) => [`c${index}`, '1']));
    plane.set('cds', all);
    const backoff = { initial: '20ms', max: '1s' };
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address], backoff }, max_removal_percent: 50 }],
    });
    using pool = new ClientPool(relay.xds, 1);
    await using operator = await Operator.at(relay);
    const client = pool.open('delta', 'client');
    client.subscribe('cds');
    await client.gets('cds', all);
    plane.kill();
    plane.set('cds', { c0: '1' });
    await plane.again();
    await operator.rehearse({
      ...nineRemovals,
      leaves: /discard/,
    });
    await client.gets('cds', { c0: '1' });
  });

  it('removals that a rollout holds, until the canary has back what it lost', async () => {
    await using plane = await ModelPlane.start();
    const all = Object.fromEntries(Array.from({ length: 10 }, (_, index) => [`c${index}`, '1']));
    plane.set('cds', all);
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] }, max_removal_percent: 50 }],
      rollout: { canary: { percent: 1 }, bake: '1s' },
    });
    using pool = new ClientPool(relay.xds, 1);
    await using operator = await Operator.at(relay);
    const clients = ['one', 'other'].map((id) => pool.open('delta', id));
    for (const client of clients) {
      client.subscribe('cds');
      await client.gets('cds', all);
    }
    plane.set('cds', { c0: '1' });
    const counts = () => clients.map((client) => Object.keys(client.has('cds')).length);
    await eventually(() => expect(counts()).to.have.members([1, 10]));
    await operator.rehearse({
      ...nineRemovals,
      leaves: /release|freeze/,
    });
    await eventually(() => expect(counts()).to.deep.equal([10, 10]));
  });

  it('a control plane that ends streams, until it serves the type', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    plane.refuses.add('lds');
    const backoff = { initial: '20ms', max: '1s' };
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address], backoff } }],
    });
    using pool = new ClientPool(relay.xds, 1);
    await using operator = await Operator.at(relay);
    const client = pool.open('delta', 'client');
    client.subscribe('cds');
    await client.gets('cds', { a: '1' });
    client.subscribe('lds');
    await operator.rehearse({
      runbook: 'upstream-streams-end',
      kind: 'upstream_streams_end',
      check: 1,
      says: /^Upstream central ends streams of the relay: .*lds is not served here/,
      metric: ['upstream_stream_ends_total', 'code="PERMISSION_DENIED"', (value) => value > 0],
      set: { TYPE: 'lds' },
      mends: () => {
        plane.refuses.clear();
        plane.set('lds', { web: '1' });
      },
      // It is asked again after half a minute at most, and has to last as long as it failed.
      isOver: () => isOver(relay, 'upstream_streams_end', { timeout: 240_000 }),
    });
    await client.gets('lds', { web: '1' });
  });

  it('workers that exit again and again, and clients that a limit refuses', async () => {
    await using world = await start({ workers: 1, limits: { max_streams: 2 } });
    const pids = new Set<number>();
    while (pids.size < 3) {
      const { pid } = await eventually(async () => {
        const running = await worker(world.relay);
        if (pids.has(running.pid)) throw new Error('it has not exited yet');
        return running;
      });
      pids.add(pid);
      signalTo(pid, 'SIGKILL');
    }
    await world.operator.rehearse({
      runbook: 'workers-restart',
      kind: 'workers_restart',
      check: 2,
      says: /restarted 3 times.*SIGKILL/,
      metric: ['worker_restarts_total', '', (value) => value === 3],
      isOver: () => worker(world.relay),
    });
    await world.open('prod-eu-1');
    await world.open('prod-eu-2');
    await world.join('prod-eu-3').ends();
    await world.operator.rehearse({
      runbook: 'limits',
      kind: 'clients_turned_away',
      check: 2,
      says: /^Limits have refused clients .*: streams: \d+$/,
      metric: ['downstream_rejected_total', 'reason="streams"', (value) => value > 0],
      mends: () => world.relay.configure({ ...world.config, limits: { max_streams: 10 } }),
      isOver: () => isServed(world.join('prod-eu-4')),
    });
  });

  it('clients that the rules allow nothing, until the rules name them', async () => {
    await using world = await start({
      xds: { address: '127.0.0.1:0', authorization: { rules: [{ allow: false }] } },
    });
    const refused = world.join('prod-eu-1');
    await refused.ends();
    await world.operator.rehearse({
      runbook: 'clients-refused',
      kind: 'clients_refused',
      check: 1,
      says: /^Clients were not accepted \d+ times? in the last 10 minutes: denied: \d+$/,
      metric: ['downstream_rejected_total', 'reason="denied"', (value) => value > 0],
      set: { FILE: world.relay.file },
      mends: () => world.relay.configure({ ...world.config, xds: { address: '127.0.0.1:0' } }),
      isOver: () => isServed(world.join('prod-eu-2')),
    });
  });

  it('a relay that does not answer, until its configuration is mended', async () => {
    using directory = temporaryDirectory();
    using files = new ResourceFiles();
    const admin = { address: `127.0.0.1:${await ownPort()}` };
    const file = join(directory.path, 'relay.yaml');
    writeFileSync(file, 'upstreams: []\n');
    const { code, output } = await outcome(distributary('run', '--config', file));
    expect([code, output]).to.deep.equal([2, output]);
    await using terminal = await terminalFor(admin.address);
    await using stack = new AsyncDisposableStack();
    await typeRunbook(terminal, {
      runbook: 'relay-down',
      set: { FILE: file },
      fails: /curl|validate/,
      mends: async () => {
        stack.use(await RelayProcess.start({ admin, upstreams: [files.upstream] }));
      },
    });
  });

  it('a relay that is busy, until it is not', async () => {
    await using world = await start();
    const quiet = new AbortController();
    // What a machine does that gives it no CPU: most of the time it stands.
    const busy = (async () => {
      while (!quiet.signal.aborted) {
        world.relay.signal('SIGSTOP');
        await sleep(700);
        world.relay.signal('SIGCONT');
        await sleep(150);
      }
    })();
    try {
      await eventually(async () => expect(await kindsOf(world.relay)).to.include('busy'), {
        timeout: 150_000,
      });
      await world.operator.rehearse({
        runbook: 'relay-busy',
        kind: 'busy',
        check: 1,
        says: /^A process of the relay is busy: events wait for /,
        set: { TYPE: 'lds' },
        mendsBefore: /unfreeze/,
        mends: async () => {
          quiet.abort();
          await busy;
        },
        isOver: () => isOver(world.relay, 'busy', { timeout: 120_000 }),
      });
    } finally {
      quiet.abort();
      await busy;
    }
  });

  it('types every command of these runbooks', () => {
    expect(notTyped()).to.deep.equal([]);
  });
});
