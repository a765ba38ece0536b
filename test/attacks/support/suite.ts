import { expect } from 'chai';
import { type Attack, lackingFor } from './attack.ts';
import { type Figures, figuresOf } from './figures.ts';
import { type Kind, RelayStage, type StageOptions } from './relay-stage.ts';
import { type Outcome, runAttack } from './run-attack.ts';
import { warmUp } from './warm-up.ts';

const MB = 1024 * 1024;
/** What all attacks of a suite together may leave, in bytes: code that was compiled, buffers that are reused. */
const atTheEnd = 24 * MB;
const tries = 3;

export interface SuiteOptions extends StageOptions {
  readonly kind: Kind;
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
    let atFirst: Figures;
    let last: Figures;

    before(async () => {
      stage = await RelayStage.start(options.kind, options);
      await warmUp(stage.target);
      await stage.witness.begin();
      atFirst = await figuresOf(stage.target, stage);
      last = atFirst;
    });

    after(() => stage?.[Symbol.asyncDispose]());

    for (const [table, attacks] of Object.entries(tables)) {
      describe(table, () => {
        for (const attack of attacks) {
          it(attack.name, async () => {
            expect(lackingFor(attack, stage.target)).to.deep.equal([]);
            const { problems, after } = await withstand(attack, stage, last);
            last = after;
            expect(problems).to.deep.equal([]);
          });
        }
      });
    }

    describe('afterwards', () => {
      it('all of them together have left no memory behind', () => {
        expect(last.memory - atFirst.memory).to.be.below(atTheEnd);
      });
    });
  });
}

/**
 * A busy machine is slow in ways that no counter tells. An attack after which only times are wrong is tried again: what
 * blocks the loop does so each time.
 */
async function withstand(attack: Attack, stage: RelayStage, before: Figures): Promise<Outcome> {
  let outcome = await runAttack(attack, stage, before);
  for (let again = 0; again < tries - 1 && outcome.late; again++)
    outcome = await runAttack(attack, stage, before);
  return outcome;
}
