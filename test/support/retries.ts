import { relative } from 'node:path';

/** Tests of real processes and sockets: on a shared machine what they measure may come late. */
const realProcesses = /^test\/(attacks|deploy|docs|e2e|long|observability|workers)\//;
const root = `${import.meta.dirname}/../..`;

function allow(suite: Mocha.Suite): void {
  for (const test of suite.tests) {
    if (test.file !== undefined && realProcesses.test(relative(root, test.file))) test.retries(1);
  }
  for (const inner of suite.suites) allow(inner);
}

/** In CI those get a second try, which the reporter counts; what is wrong in any other test is wrong at once. */
export const mochaHooks: Mocha.RootHookObject = {
  beforeAll(this: Mocha.Context) {
    const suite = this.test?.parent;
    if (process.env['CI'] === 'true' && suite !== undefined) allow(suite);
  },
};
