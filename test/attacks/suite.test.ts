import { join } from 'node:path';
import { expect } from 'chai';
import { XdsClient } from '../e2e/support/xds-client.ts';
import type { Attack } from './support/attack.ts';
import { RelayStage } from './support/relay-stage.ts';
import { runAttack, usualBounds } from './support/run-attack.ts';
import { warmUp } from './support/warm-up.ts';

const weakness = join(import.meta.dirname, 'support/weakness.ts');

describe('the suite of attacks notices', () => {
  let stage: RelayStage;

  before(async () => {
    stage = await RelayStage.start('plain', { flags: [`--import=${weakness}`] });
    await warmUp(stage.target);
  });

  after(() => stage?.[Symbol.asyncDispose]());

  /** What it finds wrong. What does not come back is not waited for. */
  const problemsOf = async (run: Attack['run']): Promise<string> => {
    const bounds = { ...usualBounds, settle: 500 };
    const { target, witness } = stage;
    const weak = { target, witness, bounds, memory: () => stage.memory(), alive: () => stage.alive() };
    return (await runAttack({ name: 'made up', run }, weak)).problems.join('\n');
  };

  it('nothing where nothing is wrong', async () => {
    expect(await problemsOf(async () => {})).to.equal('');
  });

  it('a loop that is blocked for a second of CPU', async () => {
    const problems = await problemsOf(async () => stage.relay.signal('SIGVTALRM'));
    expect(problems).to.match(/^Health\/Check took \d+ ms/);
  });

  it('20 MB that are kept', async () => {
    const problems = await problemsOf(async () => stage.relay.signal('SIGWINCH'));
    expect(problems).to.match(/^memory: (19|20|21)\.\d MB are kept$/);
  });

  it('a stream that stays open', async () => {
    await using stack = new AsyncDisposableStack();
    const problems = await problemsOf(async () => {
      const left = stack.use(new XdsClient(stage.relay.xds, 'delta'));
      left.subscribe('cds', ['shop']);
      await left.gets('cds');
    });
    expect(problems).to.match(/^streams: 2 are open, 1 were before$/m);
  });

  it('a reaction of the relay that is wrong', async () => {
    const problems = await problemsOf(async () => {
      throw new Error('it was taken');
    });
    expect(problems).to.match(/^the relay's reaction: Error: it was taken/);
  });

  it('a relay that ends', async () => {
    const problems = await problemsOf(async () => {
      stage.relay.signal('SIGKILL');
      await stage.relay.exited;
    }).catch(String);
    expect(problems).to.match(/ECONNREFUSED|the relay ended/);
  });
});
