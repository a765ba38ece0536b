import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { explainedOf, run } from './support/command.ts';
import { always, eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { signalTo } from './support/process.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { operate, reaches, rolloutOf } from './support/rollout-state.ts';
import { Connections, type VariantClient } from './support/variant-client.ts';

const backoff = { initial: '20ms', max: '100ms' };
const admin = 'distributary.admin.v1.AdminService';
const inEnvironment = (value: string) => [{ key: 'env', value }];

/** The clients of the environment `canary`, then those of `test`, then everybody. */
const waves = [{ match: inEnvironment('canary') }, { match: inEnvironment('test') }, { percent: 100 }];
const environments = ['canary', 'test', 'prod'];

const configOf = (plane: ModelPlane, rollout: object, more: object): RelayConfig => ({
  upstreams: [{ name: 'central', ads: { endpoints: [plane.address], backoff } }],
  parameters: [{ key: 'env', from: 'node.metadata.env' }],
  rollout: { waves, bake: '500ms', ...rollout },
  ...more,
});

const at = z.object({ wave: z.number(), waves: z.number(), answer: z.string() });
const listed = z.object({
  clients: z.array(z.object({ node: z.object({ id: z.string() }), wave: at.optional() })),
});

/** So long a client stays with what it has accepted, at the least, before those of the next wave hear of it. */
const bakes = 400;

/** A client of each environment. All begin with the content 1. */
class World implements AsyncDisposable {
  readonly plane: ModelPlane;
  readonly relay: RelayProcess;
  readonly clients: readonly VariantClient[];
  /** All that they were told, also what they rejected, in the order in which it came. */
  readonly #told: { readonly env: string; readonly said: readonly string[]; readonly at: number }[] = [];
  readonly #connections: Connections;

  private constructor(plane: ModelPlane, relay: RelayProcess, workers: number, rejects: readonly string[]) {
    this.plane = plane;
    this.relay = relay;
    this.#connections = new Connections(relay.xds, workers + 1);
    this.clients = environments.map((env) => {
      const accepts = (said: readonly string[]): boolean => {
        this.#told.push({ env, said, at: performance.now() });
        return !said.some((one) => rejects.includes(`${env} ${one}`));
      };
      const node = { id: env, metadata: { env } };
      const client = this.#connections.open({ protocol: 'delta', node, accepts });
      client.want('cds', { names: ['a', 'b'] });
      return client;
    });
  }

  static async start(
    rollout: object = {},
    { workers = 0, rejects = [] }: { readonly workers?: number; readonly rejects?: readonly string[] } = {},
  ): Promise<World> {
    const plane = await ModelPlane.start();
    plane.set('cds', { a: '1', b: '1' });
    const relay = await RelayProcess.start(configOf(plane, rollout, { workers }));
    const world = new World(plane, relay, workers, rejects);
    await world.have('canary test prod', '1');
    return world;
  }

  /** Which have a content of `a`. */
  having(content: string, name = 'a'): string {
    const all = environments.filter((_, at) => this.clients[at]?.has('cds').includes(`${name}: ${content}`));
    return all.join(' ');
  }

  have(who: string, content: string, name = 'a'): Promise<void> {
    return eventually(() => {
      expect(this.having(content, name)).to.equal(who);
    });
  }

  /**
   * Who has heard of a content of `a`, one after the other. Time between them is that of the relay, however late this
   * process looks: who has not answered yet bakes nothing.
   */
  heard(content: string): readonly { readonly env: string; readonly at: number }[] {
    const all = this.#told.filter(({ said }) => said.includes(`+a ${content}`));
    return environments
      .flatMap((env) => all.find((one) => one.env === env) ?? [])
      .toSorted((one, other) => one.at - other.at);
  }

  /** Waits until everybody has it, one wave after the other. */
  async goesThroughWaves(content: string): Promise<void> {
    await this.have('canary test prod', content);
    const [canary, test, prod] = this.heard(content);
    expect([canary?.env, test?.env, prod?.env]).to.deep.equal(environments);
    expect((test?.at ?? 0) - (canary?.at ?? 0)).to.be.above(bakes);
    expect((prod?.at ?? 0) - (test?.at ?? 0)).to.be.above(bakes);
  }

  async wave(): Promise<string> {
    const { body } = await this.relay.rpc(`${admin}/Status`, {});
    const rollout = z.object({ wave: z.number(), waves: z.number(), state: z.string() });
    const { wave, waves: all, state } = z.object({ rollout }).parse(JSON.parse(body)).rollout;
    return `${state} ${wave}/${all}`;
  }

  /** Those for whom something waits: `test 2/3 REJECTED`. */
  async members(wave = 0): Promise<readonly string[]> {
    const { body } = await this.relay.rpc(`${admin}/ListClients`, { wave });
    return listed
      .parse(JSON.parse(body))
      .clients.flatMap(({ node, wave: at }) =>
        at === undefined ? [] : [`${node.id} ${at.wave}/${at.waves} ${at.answer}`.trimEnd()],
      )
      .toSorted();
  }

  reaches(wave: string): Promise<void> {
    return eventually(async () => {
      expect(await this.wave()).to.equal(wave);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connections[Symbol.dispose]();
    await this.relay.stop();
    await this.plane[Symbol.asyncDispose]();
  }
}

for (const workers of cases(0, 2)) {
  describe(`waves with workers: ${workers}`, () => {
    it('each adds its clients, and after the last everybody has it', async () => {
      await using world = await World.start({}, { workers });
      expect(await world.wave()).to.equal('IDLE 0/3');
      world.plane.set('cds', { a: '2', b: '1' });
      await world.goesThroughWaves('2');
      await world.reaches('IDLE 0/3');
      const { out } = await run('history', '--limit', '1', '--admin', `http://${world.relay.admin}`);
      expect(out).to.include('RELEASED after 3 waves');
    });

    it('what comes joins the first wave that meets somebody, and waits from the next one on', async () => {
      const nobody = { match: inEnvironment('nobody') };
      const [canary] = waves;
      await using world = await World.start(
        { waves: [nobody, canary, { percent: 100 }], mode: 'MANUAL' },
        { workers },
      );
      world.plane.set('cds', { a: '2', b: '1' });
      await world.reaches('CANARY 2/3');
      await world.have('canary', '2');
      world.plane.set('cds', { a: '2', b: '2' });
      await world.have('canary', '2', 'b');
      await world.reaches('CANARY 2/3');
      await operate(world.relay, 'Promote');
      for (const name of ['a', 'b']) await world.have('canary test prod', '2', name);
      const { pending_revision: before } = await rolloutOf(world.relay);
      world.plane.set('cds', { a: '3', b: '2' });
      await eventually(async () =>
        expect((await rolloutOf(world.relay)).pending_revision).to.be.above(before),
      );
      await always(() => {
        expect(world.having('3')).to.equal('');
      }, 500);
      await operate(world.relay, 'Promote');
      await world.have('canary', '3');
    });

    it('says who is in which wave, and what they say to the change', async () => {
      await using world = await World.start({ mode: 'MANUAL' }, { workers, rejects: ['test +a 2'] });
      expect(await world.members(), 'nothing waits').to.deep.equal([]);
      world.plane.set('cds', { a: '2', b: '1' });
      await eventually(async () => {
        expect(await world.members()).to.deep.equal(['canary 1/3 ACCEPTED', 'prod 3/3', 'test 2/3']);
      });
      const history = async () =>
        (await run('history', '--limit', '1', '--admin', `http://${world.relay.admin}`)).out;
      expect(await history()).to.include('CANARY in wave 1 of 3');
      expect(await world.members(2)).to.deep.equal(['test 2/3']);
      expect(await world.members(4)).to.deep.equal([]);
      await operate(world.relay, 'Promote');
      await eventually(async () => {
        expect(await world.members()).to.deep.equal(['canary 1/3 ACCEPTED', 'prod 3/3', 'test 2/3 REJECTED']);
      });
      await world.reaches('HELD 2/3');
      expect(await history()).to.include('HELD in wave 2 of 3: rejected');
      const { out } = await run('status', '--admin', `http://${world.relay.admin}`);
      expect(out).to.include('wave 1: 1 client; 1 accepted, 0 rejected, done\n');
      expect(out).to.include('wave 2: 1 client; 0 accepted, 1 rejected, bakes 0 s\n');
      expect(out).to.include('wave 3: 1 client, bakes 0 s\neverybody else: 0 clients\n');
      const listed = await run(
        'clients',
        '--wave',
        '2',
        '-o',
        'wide',
        '--admin',
        `http://${world.relay.admin}`,
      );
      expect(listed.out).to.match(/ WAVE .*\n.* test .* 2 REJECTED .*\n\n1 of 3 clients/);
      await operate(world.relay, 'Discard');
      await eventually(async () => {
        expect(await world.members()).to.deep.equal([]);
      });
      expect(await history()).to.include('DISCARDED in wave 2: rejected');
    });

    it('what comes in a later wave waits until the change has ended, and starts at the first', async () => {
      await using world = await World.start({ mode: 'MANUAL' }, { workers });
      world.plane.set('cds', { a: '2', b: '1' });
      await world.have('canary', '2');
      // In the first wave a change joins.
      world.plane.set('cds', { a: '3', b: '1' });
      await world.have('canary', '3');
      expect((await operate(world.relay, 'Promote')).body).to.deep.equal({ promoted: 1, wave: 1, waves: 3 });
      await world.have('canary test', '3');
      world.plane.set('cds', { a: '4', b: '2' });
      await always(() => {
        expect(world.having('4')).to.equal('');
      }, 500);
      expect(world.having('2', 'b')).to.equal('');
      expect(await world.wave()).to.equal('CANARY 2/3');
      await operate(world.relay, 'Promote');
      await world.have('canary test prod', '3');
      await operate(world.relay, 'Promote');
      await world.have('canary', '4');
      await world.have('canary', '2', 'b');
      await always(() => {
        expect(world.having('4')).to.equal('canary');
      }, 500);
      expect(world.having('3')).to.equal('test prod');
      await world.reaches('CANARY 1/3');
    });

    it('what a later wave rejects is held for those who have it, and what mends it goes to them alone', async () => {
      const rejects = ['test +a 2'];
      await using world = await World.start({}, { workers, rejects });
      world.plane.set('cds', { a: '2', b: '1' });
      const held = await reaches(world.relay, 'HELD');
      expect(held.reason).to.include('cds a');
      expect(await world.wave()).to.equal('HELD 2/3');
      expect(world.having('2')).to.not.include('prod');
      world.plane.set('cds', { a: '5', b: '1' });
      await world.have('canary test prod', '5');
      const [one, other, last] = world.heard('5');
      expect([one?.env, other?.env]).to.have.members(['canary', 'test']);
      expect((last?.at ?? 0) - (other?.at ?? 0)).to.be.above(bakes);
      await world.reaches('IDLE 0/3');
    });

    it('on_failure: DISCARD takes it back from all waves, and it stays away', async () => {
      const rejects = ['test +a 2'];
      await using world = await World.start({ on_failure: 'DISCARD' }, { workers, rejects });
      world.plane.set('cds', { a: '2', b: '1' });
      await eventually(() =>
        expect(world.heard('2').map(({ env }) => env)).to.deep.equal(['canary', 'test']),
      );
      await world.have('canary test prod', '1');
      await world.reaches('IDLE 0/3');
      expect(world.heard('2')).to.have.length(2);
      expect((await rolloutOf(world.relay)).cause).to.equal('rejected');
      const { out } = await run('history', '--limit', '1', '--admin', `http://${world.relay.admin}`);
      expect(out).to.include('DISCARDED in wave 2: rejected');
      const counted = await world.relay.metric('rollouts_total', 'result="discarded"');
      expect(counted).to.equal(1);
      world.plane.set('cds', { a: '3', b: '1' });
      await world.goesThroughWaves('3');
    });

    it('a wave that meets nobody passes at once', async () => {
      const nowhere = { match: inEnvironment('nowhere'), bake: '90s' };
      const few = [nowhere, { match: inEnvironment('test') }, { percent: 100 }];
      await using world = await World.start({ waves: few, bake: '1500ms' }, { workers });
      world.plane.set('cds', { a: '2', b: '1' });
      // Well before the bake of the first one would be over.
      await eventually(() => expect(world.heard('2')[0]?.env).to.equal('test'));
      const at = ['--admin', `http://${world.relay.admin}`];
      const passed = await run('wait', '--wave', '1', '--timeout', '30s', ...at);
      expect(passed.code, passed.err).to.equal(0);
      await world.have('canary test prod', '2');
      const [first, next] = world.heard('2');
      expect(first?.env).to.equal('test');
      expect((next?.at ?? 0) - (first?.at ?? 0), 'the bake of the second wave').to.be.above(1400);
    });
  });
}

describe('waves with workers', () => {
  it('a change that comes when a worker has ended waits for clients to come back: no wave passes unjudged', async () => {
    await using world = await World.start({}, { workers: 1 });
    const [, before = 0] = await world.relay.pids();
    signalTo(before, 'SIGKILL');
    world.plane.set('cds', { a: '2', b: '1' });
    await eventually(async () => {
      const [, pid = 0] = await world.relay.pids();
      expect([0, before]).to.not.include(pid);
    });
    await always(async () => {
      expect(await world.wave()).to.equal('CANARY 1/3');
    }, 2000);
  });

  it('what was rejected and mended is no reason to hold what comes next', async () => {
    await using world = await World.start({}, { workers: 2, rejects: ['canary +a 2'] });
    const held = () => world.relay.metric('rollouts_total', 'result="held"');
    world.plane.set('cds', { a: '2', b: '1' });
    await world.reaches('HELD 1/3');
    world.plane.set('cds', { a: '1', b: '1' });
    await world.reaches('IDLE 0/3');
    expect(await held()).to.equal(1);
    world.plane.set('cds', { a: '3', b: '1' });
    await world.goesThroughWaves('3');
    await world.reaches('IDLE 0/3');
    expect(await held()).to.equal(1);
  });

  it('canaries that leave while a change is frozen have not left because of it', async () => {
    await using world = await World.start({ mode: 'MANUAL' }, { workers: 2 });
    world.plane.set('cds', { a: '2', b: '1' });
    await eventually(async () => expect((await rolloutOf(world.relay)).canaries.accepted).to.equal(1));
    await operate(world.relay, 'Freeze');
    await reaches(world.relay, 'FROZEN');
    world.clients[0]?.close();
    await eventually(async () => expect((await world.relay.clients()).length).to.equal(2));
    await operate(world.relay, 'Unfreeze');
    await world.reaches('CANARY 1/3');
    await always(async () => {
      expect(await world.wave()).to.equal('CANARY 1/3');
    }, 2000);
  });
});

describe('waves for an operator', () => {
  it('`wait --wave`, `promote`, and refusals', async () => {
    await using world = await World.start({ mode: 'MANUAL' });
    const at = ['--admin', `http://${world.relay.admin}`];
    const promote = (...flags: readonly string[]): ReturnType<typeof run> =>
      run('promote', '--reason', 'looks good', ...flags, ...at);
    expect((await promote()).err).to.include('nothing waits');
    world.plane.set('cds', { a: '2', b: '1' });
    expect((await run('wait', '--wave', '1', '--timeout', '30s', ...at)).code).to.equal(0);
    const early = await run('wait', '--wave', '2', '--timeout', '300ms', ...at);
    expect(early.code).to.equal(1);
    expect(early.err).to.include('wave 1 of 3');
    const late = await run('wait', '--wave', '2', '--timeout', '4s', ...at);
    expect(late.err).to.match(
      /^CANARY in wave 1 of 3: accepted by 1 of 1 client: [^\n]*MANUAL[^\n]*\nnot accepted/,
    );
    const both = await Promise.all([promote('--wave', '1'), promote('--wave', '1')]);
    const [done, again] = both.toSorted((a, b) => Number(a.code) - Number(b.code));
    expect(done?.out).to.include('promoted: 1 name; wave 1 of 3 is over');
    expect(again?.err).to.include('it is in wave 2: nothing is in the wave that is to end');
    expect((await run('wait', '--wave', '2', '--timeout', '30s', ...at)).code).to.equal(0);
    expect((await run('status', ...at)).out).to.include('wave 2 of 3');
    await promote();
    expect((await promote()).out).to.include('everybody gets it');
    expect((await run('wait', '--wave', '3', '--timeout', '30s', ...at)).code).to.equal(0);
    expect((await rolloutOf(world.relay)).state).to.equal('IDLE');
    const { out } = await run('history', ...at);
    expect(out).to.match(/RELEASED after 3 waves .* ~a \(looks good; looks good; looks good\)/);
  });

  it('what is queued is told as such: nobody has it', async () => {
    await using world = await World.start({ mode: 'MANUAL' });
    const at = ['--admin', `http://${world.relay.admin}`];
    const told = async (command: string, ...flags: string[]): Promise<string> =>
      (await run(command, ...flags, ...at)).out;
    world.plane.set('cds', { a: '2', b: '1' });
    await world.have('canary', '2');
    await operate(world.relay, 'Promote');
    await world.have('canary test', '2');
    expect(await told('status')).to.not.include('queued');
    expect(await told('diff', '--pending')).to.not.include('queued');
    // As it was for everybody: what the canaries have is another.
    world.plane.set('cds', { a: '1', b: '3' });
    await eventually(async () => {
      expect(await told('status')).to.include(
        '\nqueued: 2 names (cds) until the change before it has ended\n',
      );
    });
    expect(await told('diff', '--pending')).to.match(
      /^CHANGE +TYPE +NAME\nchanged +cds +a\n\nqueued behind it: [^\n]*\n\nCHANGE +TYPE +NAME\nchanged +cds +a\nchanged +cds +b$/,
    );
    world.plane.set('cds', { a: '4', b: '3' });
    await eventually(async () => {
      expect(await told('diff', '--pending', '--name', 'a')).to.include('queued');
      expect(await told('history'))
        .to.match(/ QUEUED +0 +0 /)
        .and.to.match(/ CANARY in wave 2 of 3 +2 +0 /);
    });
    await operate(world.relay, 'Promote');
    await operate(world.relay, 'Promote');
    await eventually(async () => {
      expect(await told('status')).to.not.include('queued:');
      const history = await told('history');
      expect(history)
        .to.match(/ CANARY in wave 1 of 3 /)
        .and.to.not.include('QUEUED');
      expect(history)
        .to.match(/ RELEASED after 3 waves /)
        .and.to.not.include('REPLACED in wave');
    });
  });

  it('while a change is frozen its canaries are not counted, and `status` does not say that there are none', async () => {
    await using world = await World.start({ mode: 'MANUAL' });
    const status = async (): Promise<string> =>
      (await run('status', '--admin', `http://${world.relay.admin}`)).out;
    world.plane.set('cds', { a: '2', b: '1' });
    await eventually(async () => expect(await status()).to.match(/^canaries: 1 stream; 1 accepted/m));
    await operate(world.relay, 'Freeze');
    await reaches(world.relay, 'FROZEN');
    expect(await status()).to.match(/^canaries: not asked while it is frozen: they keep what they have$/m);
    expect(world.having('2')).to.equal('canary');
    await operate(world.relay, 'Unfreeze');
    await eventually(async () => expect(await status()).to.match(/^canaries: 1 stream; 1 accepted/m));
  });

  it('`explain` says who has what, and that nobody has what is queued', async () => {
    await using world = await World.start({ mode: 'MANUAL' });
    const explained = (env: string): Promise<string> => explainedOf(world.relay, env, 'cds', 'a');
    world.plane.set('cds', { a: '2', b: '1' });
    await world.have('canary', '2');
    await operate(world.relay, 'Promote');
    await world.have('canary test', '2');
    world.plane.set('cds', { a: '3', b: '1' });
    const queued = / v3 +nobody has it yet: it waits until the change before it has ended$/m;
    await eventually(async () => {
      expect(await explained('test')).to.match(queued);
    });
    expect(await explained('test')).to.match(/^yes .* v2 +env == "test" holds$/m);
    const everybody = await explained('prod');
    expect(everybody).to.match(queued);
    expect(everybody).to.match(/^yes .* v1 +env == "prod" holds$/m);
    expect(everybody).to.match(/^no .* v2 +only canaries have it yet$/m);
  });
});
