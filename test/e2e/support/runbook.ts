import { expect } from 'chai';
import { type Kind, problemKinds } from '../../../src/observe/problems.ts';
import { blocksIn, read } from '../../docs/page.ts';
import { ReaderTerminal } from '../../docs/terminal.ts';
import { eventually } from './eventually.ts';
import { root } from './paths.ts';
import { alertsOf, everywhere, firing, isComparable, isOver as isGone, soon } from './problems.ts';
import { distributary, type RelayProcess } from './relay.ts';

/** Runbooks that no test types, and why. */
export const notRehearsed: ReadonlyMap<string, string> = new Map([
  ['standstill', 'its process is gone, and it reads the log: test/e2e/watchdog.test.ts'],
]);

/** A state that a runbook is for, and what it says to do about it where no command does. */
export interface Drill {
  readonly runbook: string;
  readonly kind: Kind;
  /** How `status --check` ends. */
  readonly check: 1 | 2;
  /** The problem's title and detail. */
  readonly says: RegExp;
  /** A metric that the alert asks for, labels of it, and what its value is. */
  readonly metric?: readonly [name: string, labels: string, is: (value: number) => boolean];
  /** What the operator sets before typing. */
  readonly set?: Readonly<Record<string, string>>;
  /** Commands that are for another state of the same runbook. */
  readonly leaves?: RegExp;
  /** Commands that fail in this state: that is what they show. */
  readonly fails?: RegExp;
  /** What is to be mended outside of the relay, before the first command of these, or when all are typed. */
  readonly mends?: () => Promise<void> | void;
  readonly mendsBefore?: RegExp;
  /** How it is over, if not by the problem's end: what has happened counts for as long as its alert looks back. */
  readonly isOver?: () => Promise<unknown>;
}

/** Log, page, `status`, /ready, metric and alert say of the state what the runbook is about. */
async function isSaidEverywhere(
  relay: RelayProcess,
  { runbook, kind, check, says, metric }: Drill,
): Promise<void> {
  await everywhere(relay, kind, check, says);
  expect(problemKinds[kind].runbook).to.equal(runbook);
  const alerts = alertsOf(kind);
  if (metric !== undefined) {
    const [name, labels, is] = metric;
    await soon(async () => {
      const value = await relay.metric(name, labels);
      expect(is(value), `${name}{${labels}} is ${value}`).to.equal(true);
    });
    expect(alerts.some(({ expr }) => expr.includes(`distributary_${name}`))).to.equal(true);
  }
  if (alerts.some(isComparable)) await soon(async () => expect(await firing(relay, kind)).not.to.be.empty);
}

/** Somebody who is on call, at a terminal from which the relay is asked. */
export class Operator implements AsyncDisposable {
  readonly #terminal: ReaderTerminal;
  readonly #relay: RelayProcess;

  private constructor(terminal: ReaderTerminal, relay: RelayProcess) {
    this.#terminal = terminal;
    this.#relay = relay;
  }

  static async at(relay: RelayProcess): Promise<Operator> {
    return new Operator(await terminalFor(relay.admin), relay);
  }

  /**
   * The relay is in the state of the runbook: it says so everywhere, the commands of the runbook are typed as they stand,
   * and then the state is over. Several states of a runbook together type all of its commands.
   */
  async rehearse(drill: Drill): Promise<void> {
    await isSaidEverywhere(this.#relay, drill);
    await typeRunbook(this.#terminal, drill);
    const { kind, isOver } = drill;
    await (isOver === undefined ? isGone(this.#relay, kind) : eventually(isOver));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#terminal[Symbol.asyncDispose]();
  }
}

/** With the command `distributary`, and the relay that it asks. */
export async function terminalFor(admin: string): Promise<ReaderTerminal> {
  const terminal = new ReaderTerminal(root, { DISTRIBUTARY_ADMIN: `http://${admin}` });
  const { command, args } = distributary();
  await terminal.type(`distributary() { ${[command, ...args].map((word) => `'${word}'`).join(' ')} "$@"; }`);
  return terminal;
}

const over = '## How to know that it is resolved';
/** What is typed of each runbook, over all states of it. */
const typed = new Map<string, Set<string>>();

const commandsIn = (text: string): readonly string[] =>
  blocksIn(text)
    .filter(({ info }) => info === 'sh')
    .flatMap((block) => block.text.trim().split('\n'));

/** Types the commands of a runbook, the last ones until they succeed. */
export async function typeRunbook(
  terminal: ReaderTerminal,
  { runbook, set = {}, leaves, fails, mends, mendsBefore }: Omit<Drill, 'kind' | 'check' | 'says'>,
): Promise<void> {
  const page = read(`docs/runbooks/${runbook}.md`);
  const [todo = '', known = ''] = page.split(over);
  const done = typed.get(runbook) ?? new Set();
  typed.set(runbook, done);
  for (const [name, value] of Object.entries(set)) await terminal.type(`${name}='${value}'`);
  let isMended = false;
  for (const line of commandsIn(todo)) {
    if (leaves?.test(line) === true) continue;
    if (!isMended && mendsBefore?.test(line) === true) {
      await mends?.();
      isMended = true;
    }
    done.add(line);
    const { code, printed } = await terminal.run(line);
    expect(code !== 0, `${line} ended with ${code}:\n${printed}`).to.equal(fails?.test(line) === true);
    expect(printed).not.to.match(/^Usage: /m);
  }
  if (!isMended) await mends?.();
  for (const line of commandsIn(known)) {
    done.add(line);
    await eventually(() => terminal.type(line), { pause: 500 });
  }
}

/** Commands of the runbooks that were rehearsed in this process, and were typed in none of their states. */
export const notTyped = (): readonly string[] =>
  [...typed].flatMap(([runbook, done]) =>
    commandsIn(read(`docs/runbooks/${runbook}.md`)).filter((line) => !done.has(line)),
  );
