import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { config } from 'chai';
import Mocha from 'mocha';
import { missing, type Report, root } from '../run/report.ts';

const { EVENT_RUN_END, EVENT_SUITE_BEGIN, EVENT_SUITE_END } = Mocha.Runner.constants;
const { EVENT_TEST_FAIL, EVENT_TEST_PASS, EVENT_TEST_PENDING } = Mocha.Runner.constants;

// What a test of a busy machine has found is seldom seen again: its text is printed as far as it helps.
config.truncateThreshold = 1000;

/** How long after the last test something may still be open, in milliseconds. */
const lingering = 15_000;

/**
 * Prints each behaviour below its suite, then the failures with their diffs, and as the last line the count:
 * `N passed, N failed`, with `, N skipped` when some were.
 */
class Reporter extends Mocha.reporters.Base {
  #depth = 0;
  /** Titles of the suites or tests that are left out. */
  readonly #skipped: string[] = [];

  constructor(runner: Mocha.Runner, options: Mocha.MochaOptions) {
    super(runner, options);
    runner.on(EVENT_SUITE_BEGIN, (suite) => {
      if (suite.root) return;
      if (this.#depth === 0) this.#say('');
      this.#say(suite.title);
      this.#depth += 1;
    });
    runner.on(EVENT_SUITE_END, (suite) => {
      if (!suite.root) this.#depth -= 1;
    });
    runner.on(EVENT_TEST_PASS, (test) => this.#say(`ok    ${test.title}${duration(test)}`));
    runner.on(EVENT_TEST_FAIL, (test) => this.#say(`FAIL  ${test.title}${duration(test)}`));
    runner.on(EVENT_TEST_PENDING, (test) => {
      this.#skipped.push(test.fullTitle());
      this.#say(`skip  ${test.title}`);
    });
    runner.on(EVENT_RUN_END, () => {
      if (this.failures.length > 0) Mocha.reporters.Base.list(this.failures);
      this.#depth = 0;
      const skipped = this.#skipped.length > 0 ? `, ${this.#skipped.length} skipped` : '';
      for (const why of missing) this.#say(`left out: ${why}`);
      this.#say(`\n${this.stats.passes} passed, ${this.stats.failures} failed${skipped}`);
    });
  }

  /** What a test left open would keep the process alive for ever: say what it is, and fail. */
  override done(failures: number, finish: (failures: number) => void): void {
    if (process.send === undefined) {
      setTimeout(() => {
        complain(process.getActiveResourcesInfo());
        process.exit(1);
      }, lingering).unref();
      finish(failures);
    } else {
      void this.#end().then(() => finish(failures));
    }
  }

  async #end(): Promise<void> {
    const stillOpen = await closed();
    if (stillOpen.length > 0) complain(stillOpen);
    this.#report(stillOpen);
  }

  /** To `npm test`, which has started this process. */
  #report(stillOpen: readonly string[]): void {
    const report: Report = {
      passed: this.stats.passes,
      failures: this.failures.map((test) => ({
        title: test.fullTitle(),
        file: relative(root, test.file ?? ''),
      })),
      skipped: this.#skipped,
      missing: [...missing],
      stillOpen: [...stillOpen],
      cpuSeconds: cpuSeconds(),
    };
    process.send?.(report);
    missing.clear(); // the next job says its own
  }

  #say(line: string): void {
    process.stdout.write(`${'  '.repeat(this.#depth)}${line}\n`);
  }
}

const complain = (stillOpen: readonly string[]): void => {
  process.stderr.write(`still open after the tests: ${stillOpen.join(', ')}\n`);
};

/** What keeps the process alive after `lingering`, but for the way to `npm test`; nothing as soon as there is nothing. */
function closed(): Promise<readonly string[]> {
  const { promise, resolve } = Promise.withResolvers<readonly string[]>();
  const end = (stillOpen: readonly string[]): void => {
    clearTimeout(timer);
    process.removeListener('beforeExit', isEmpty);
    process.channel?.ref(); // the process waits for its next job
    resolve(stillOpen);
  };
  const isEmpty = (): void => end([]);
  const timer = setTimeout(() => end(process.getActiveResourcesInfo()), lingering).unref();
  process.once('beforeExit', isEmpty);
  process.channel?.unref();
  return promise;
}

let counted = 0;

/** Linux counts what a process has waited for: user and system time of itself and of them, in hundredths of a second. */
function cpuSeconds(): number | undefined {
  if (process.platform !== 'linux') return undefined;
  const fields = readFileSync('/proc/self/stat', 'utf8').split(') ')[1]?.split(' ') ?? [];
  const before = counted;
  counted = fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / 100;
  return counted - before;
}

function duration(test: Mocha.Test): string {
  return test.speed === 'slow' || test.speed === 'medium' ? ` (${test.duration} ms)` : '';
}

/** Mocha takes a reporter from a module's default export only. */
export default Reporter;
