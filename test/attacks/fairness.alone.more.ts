import { expect } from 'chai';
import { slownessNow } from '../support/cpu.ts';
import { type Flood, floods } from './floods.ts';
import { lackingFor } from './support/attack.ts';
import { Flooding } from './support/flooding.ts';
import { p99, Questions, type Wait } from './support/questions.ts';
import { type Kind, RelayStage } from './support/relay-stage.ts';
import { warmUp } from './support/warm-up.ts';

const questions = 150;
/** On a busy machine a thread is slow in ways that no counter tells: what is wrong in the relay is so each time. */
const tries = 5;
/** Milliseconds of CPU of the relay's loop while 99 of 100 questions wait, on the machine on which it was set. */
const most = 100;

/** `FIGURES=1` prints what the well-behaved client waited. */
function note(title: string, waits: readonly Wait[]): number {
  const cpu = p99(waits.map((each) => each.cpu));
  const wall = p99(waits.map((each) => each.wall));
  if (process.env['FIGURES'] === '1') {
    const line = [cpu, wall].map((each) => `${each.toFixed(1).padStart(8)} ms`).join('');
    process.stdout.write(`${line}  ${title}\n`);
  }
  return cpu;
}

for (const kind of ['plain', 'TLS'] satisfies readonly Kind[]) {
  describe(`a well-behaved client beside one peer at full speed: ${kind}`, function () {
    this.timeout(300_000);
    let stage: RelayStage;
    let client: Questions;

    before(async function () {
      // schedstat, and a second address of the loopback.
      if (process.platform !== 'linux') this.skip();
      stage = await RelayStage.start(kind);
      await warmUp(stage.target);
      client = new Questions(stage.target, stage.relay.pid, 'red-cluster');
      await client.ask(questions);
      note(`${kind}: idle`, await client.ask(questions));
    });

    after(async () => {
      client?.[Symbol.dispose]();
      await stage?.[Symbol.asyncDispose]();
    });

    const attempt = async (chosen: readonly Flood[], title: string): Promise<number> => {
      const names = chosen.map(({ name }) => name);
      await using attacker = await Flooding.start({ target: stage.target, names });
      await client.ask(10);
      // What the peer does on the other half of a processor slows down the relay as it slows down this.
      const before = slownessNow();
      const cpu = note(`${kind}: ${title}`, await client.ask(questions));
      expect(attacker.ended).to.equal(undefined);
      return cpu / Math.max(before, slownessNow());
    };

    const beside = async (chosen: readonly Flood[], title: string): Promise<void> => {
      let cpu = Number.POSITIVE_INFINITY;
      for (let at = 0; at < tries && cpu >= most; at++) cpu = await attempt(chosen, title);
      expect(cpu).to.be.below(most);
    };

    for (const each of floods) {
      if ((kind === 'TLS') !== (each.needs?.includes('TLS') === true)) continue;
      it(each.name, () => beside([each], each.name));
    }

    it('all at once', () =>
      beside(
        floods.filter((each) => lackingFor(each, stage.target).length === 0),
        'all at once',
      ));
  });
}
