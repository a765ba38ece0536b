import { expect } from 'chai';
import { eventually } from '../../e2e/support/eventually.ts';
import { type Attack, lackingFor } from './attack.ts';
import { type Figures, figuresOf } from './figures.ts';
import { type Kind, RelayStage, type StageOptions } from './relay-stage.ts';
import { type Outcome, runAttack, type Stage } from './run-attack.ts';
import { warmUp } from './warm-up.ts';

const MB = 1024 * 1024;
/** What all attacks of a suite together may leave in a process, in bytes: code that was compiled, buffers that are reused. */
const atTheEnd = 20 * MB;
const tries = 3;

export interface SuiteOptions extends StageOptions {
  readonly kind: Kind;
  /** Memory is looked at after each attack, not only after all: collecting garbage costs half of the time. */
  readonly memoryAfterEach?: boolean;
}

/** A test for each attack of the tables, one after another, on one relay. */
export function describeAttacks(
  title: string,
  options: SuiteOptions,
  tables: Readonly<Record<string, readonly Attack[]>>,
): void {
  describe(title, function () {
    this.timeout(120_000);
    let stage: RelayStage;
    let memory: number;
    let last: Figures;

    before(async () => {
      stage = await RelayStage.start(options.kind, options);
      await warmUp(stage.target);
      await stage.witness.begin();
      memory = await stage.memory();
      last = await figuresOf(stage.target, looking());
    });

    /** The stage with as much as is to be measured after each attack. */
    const looking = (): Stage => {
      const { target, witness } = stage;
      const alive = (): string | undefined => stage.alive();
      const unknown = (): Promise<number> => Promise.resolve(Number.NaN);
      return {
        target,
        witness,
        alive,
        memory: options.memoryAfterEach === true ? () => stage.memory() : unknown,
      };
    };

    after(() => stage?.[Symbol.asyncDispose]());

    for (const [table, attacks] of Object.entries(tables)) {
      describe(table, () => {
        for (const attack of attacks) {
          it(attack.name, async () => {
            expect(lackingFor(attack, stage.target)).to.deep.equal([]);
            const { problems, after } = await withstand(attack, looking(), last);
            last = after;
            expect(problems).to.deep.equal([]);
          });
        }
      });
    }

    describe('afterwards', () => {
      it('all of them together have left no memory behind', async () => {
        await eventually(async () => {
          const processes = stage.target.pids?.length ?? 1;
          expect((await stage.memory()) - memory).to.be.below(processes * atTheEnd);
        });
      });
    });
  });
}

/**
 * A busy machine is slow in ways that no counter tells. An attack after which only times are wrong is tried again: what
 * blocks the loop does so each time.
 */
async function withstand(attack: Attack, stage: Stage, before: Figures): Promise<Outcome> {
  let outcome = await runAttack(attack, stage, before);
  for (let again = 0; again < tries - 1 && outcome.late; again++)
    outcome = await runAttack(attack, stage, before);
  return outcome;
}
