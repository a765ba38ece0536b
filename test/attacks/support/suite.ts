import { expect } from 'chai';
import { eventually } from '../../e2e/support/eventually.ts';
import { type Attack, lackingFor } from './attack.ts';
import { type Figures, figuresOf } from './figures.ts';
import { type Kind, RelayStage, type StageOptions } from './relay-stage.ts';
import { runAttack, type Stage, usualBounds } from './run-attack.ts';
import { warmUp } from './warm-up.ts';

const MB = 1024 * 1024;
/** What all attacks of a suite together may leave in a process, in bytes: code that was compiled, buffers that are reused. */
const atTheEnd = 30 * MB;

export interface SuiteOptions extends StageOptions {
  readonly kind: Kind;
  /** Memory is looked at after each attack, or table: collecting garbage costs half of the time. Left out: after all. */
  readonly memoryAfter?: 'attack' | 'table';
}

/** A test for each attack of the tables, one after another, on one relay. */
export function describeAttacks(
  title: string,
  options: SuiteOptions,
  tables: Readonly<Record<string, readonly Attack[]>>,
): void {
  describe(title, () => {
    let stage: RelayStage;
    let memory: number;
    let afterTable: number | undefined;
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
        memory: options.memoryAfter === 'attack' ? () => stage.memory() : unknown,
      };
    };

    after(() => stage?.[Symbol.asyncDispose]());

    for (const [table, attacks] of Object.entries(tables)) {
      describe(table, () => {
        for (const attack of attacks) {
          it(attack.name, async () => {
            expect(lackingFor(attack, stage.target)).to.deep.equal([]);
            const { problems, after } = await runAttack(attack, looking(), last);
            last = after;
            expect(problems).to.deep.equal([]);
          });
        }

        if (options.memoryAfter === 'table') {
          it('they have left no memory behind', async () => {
            afterTable = await leavesNoMemory(stage, afterTable ?? memory, usualBounds.memory);
          });
        }
      });
    }

    describe('afterwards', () => {
      it('all of them together have left no memory behind', async () => {
        await leavesNoMemory(stage, memory, (stage.target.pids?.length ?? 1) * atTheEnd);
      });
    });
  });
}

/** Returns what is in use. */
function leavesNoMemory(stage: RelayStage, before: number, most: number): Promise<number> {
  return eventually(async () => {
    const now = await stage.memory();
    expect(now - before).to.be.below(most);
    return now;
  });
}
