import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { AdminService } from '../../src/gen/distributary/admin/v1/admin_pb.ts';
import { knownTypes } from '../../src/model/types.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { type TemporaryDirectory, temporaryDirectory } from '../e2e/support/paths.ts';
import { childrenOf } from '../e2e/support/process-figures.ts';
import { bundleRelay } from '../run/bundle.ts';
import { restPaths } from './support/rest-calls.ts';
import { seeds } from './support/search-requests.ts';
import { SearchStage } from './support/search-stage.ts';

const main = join(import.meta.dirname, 'search.ts');
/** Of a relay of the test: how often the search has asked it for figures, and what it did once. */
const prelude = `
  import { existsSync, writeFileSync } from 'node:fs';
  const once = (mark, act) => {
    if (existsSync(mark)) return;
    writeFileSync(mark, '');
    act();
  };
  let asked = 0;
  const atQuestion = (number, mark, act) =>
    process.on('SIGUSR2', () => ++asked >= number && once(mark, act));
`;

describe('the searching attacker', function () {
  this.timeout(180_000);
  let directory: TemporaryDirectory;
  let report: string;
  let bundle: string;

  before(async function () {
    if (process.platform !== 'linux') this.skip();
    bundle = process.env['TESTS_RELAY'] ?? (await bundleRelay());
  });

  beforeEach(() => {
    directory = temporaryDirectory();
    report = join(directory.path, 'report.md');
  });

  afterEach(() => directory?.[Symbol.dispose]());

  /** Runs it to its end: the report. */
  async function search(relay: string, count: number): Promise<string> {
    const bounds = ['--minutes', '2', '--count', `${count}`, '--report', report];
    const env = { ...process.env, TESTS_RELAY: relay, TMPDIR: directory.path };
    await promisify(execFile)(process.execPath, [main, ...bounds], { env });
    return readFileSync(report, 'utf8');
  }

  /** A relay that does something before it begins; `mark` is a file that tells the next one that it was done. */
  function oddRelay(odd: (mark: string) => string): string {
    const path = join(directory.path, 'odd.mjs');
    const mark = JSON.stringify(join(directory.path, 'mark'));
    writeFileSync(
      path,
      `${prelude}${odd(mark)}\nawait import(${JSON.stringify(pathToFileURL(bundle).href)});\n`,
    );
    return path;
  }

  it('has a request for everything that a relay serves', () => {
    const sent = seeds.map(({ door, path }) => `${door} ${path}`);
    expect(sent).to.include.members([
      ...knownTypes.flatMap(({ service, streamMethod, deltaMethod, fetchMethod }) =>
        [streamMethod, deltaMethod, fetchMethod].flatMap((method) =>
          method === undefined ? [] : [`xds /${service}/${method}`],
        ),
      ),
      ...restPaths.map((path) => `rest ${path}`),
      ...AdminService.methods.map(({ name }) => `admin /${AdminService.typeName}/${name}`),
    ]);
    const openings = seeds.filter(({ kind }) => kind === 'first').map(({ door }) => door);
    expect(new Set(openings)).to.have.keys('xds', 'rest', 'admin', 'metrics');
  });

  it('reaches the listeners with TLS by a certificate, and those bytes count', async () => {
    const { signal } = new AbortController();
    await using stage = new SearchStage(signal);
    for (const door of ['xds', 'rest', 'admin']) {
      const steps = seeds.filter((step) => step.door === door && step.kind !== 'first').slice(0, 1);
      const outcome = await stage.cost('TLS', steps);
      expect(outcome?.fault).to.equal(undefined);
      expect(outcome?.spent.bytes).to.be.above(2000);
    }
  });

  it('ends by itself with a report of what was dearest, and leaves nothing behind', async () => {
    const text = await search(bundle, 12);
    expect(text).to.match(/^12 sequences, seed 0$/m);
    expect(text).to.match(/ 2 relays started, 0 starts failed$/m);
    expect(text.match(/^\| plain: 1 × (?:stream|unary) xds /gm)).to.have.length.at.least(5);
    expect(readdirSync(directory.path)).to.deep.equal(['report.md']);
  });

  it('tries again when a relay does not start, and counts it', async () => {
    const text = await search(
      oddRelay((mark) => `once(${mark}, () => process.exit(3));`),
      2,
    );
    expect(text).to.match(/^2 sequences, seed 0$/m);
    expect(text).to.match(/ 1 relays started, 1 starts failed; the last: .*ended \(3\)/m);
  });

  it('keeps what a relay ended by, with its log, and goes on with another', async () => {
    const ends = `() => { console.error('the last words'); process.exit(7); }`;
    const text = await search(
      oddRelay((mark) => `atQuestion(2, ${mark}, ${ends});`),
      3,
    );
    expect(text).to.match(/^3 sequences, seed 0$/m);
    expect(text).to.match(/ 2 relays started, 0 starts failed$/m);
    expect(text).to.match(/^- ended \(7\), 1 times: plain: 1 × stream xds /m);
    expect(text).to.match(/^## The relay ended \(7\)$/m);
    expect(text).to.match(/^the last words$/m);
  });

  it('keeps what a relay stood still by', async () => {
    const works = `() => {
      // More than a second of the reference machine, also on one that is taken for four times slower (test/support/cpu.ts).
      const until = process.threadCpuUsage().user + 4.5e6;
      while (process.threadCpuUsage().user < until) for (let at = 0; at < 1e6; at++) Math.sqrt(at);
    }`;
    const text = await search(
      oddRelay((mark) => `atQuestion(1, ${mark}, ${works});`),
      2,
    );
    expect(text).to.match(/^- stood still, 1 times: plain: 1 × stream xds /m);
    expect(text).to.match(/^## The relay stood still$/m);
  });

  it('writes its report and ends its relay when it is told to end, and when it is killed the relay ends too', async () => {
    const env = { ...process.env, TESTS_RELAY: bundle, TMPDIR: directory.path };
    const run = async (signal: NodeJS.Signals): Promise<void> => {
      const child = spawn(process.execPath, [main, '--report', report], { env, stdio: 'ignore' });
      const exited = once(child, 'exit');
      const pids = await eventually(() => {
        const found = childrenOf(child.pid ?? 0);
        if (found.length === 0 || !existsSync(report)) throw new Error('no relay and no report yet');
        return found;
      });
      child.kill(signal);
      await exited;
      await eventually(() => {
        if (pids.some((pid) => existsSync(`/proc/${pid}/exe`))) throw new Error('the relay is there still');
      });
    };
    await run('SIGTERM');
    expect(readFileSync(report, 'utf8')).to.match(/^\d+ sequences, seed 0$/m);
    await run('SIGKILL');
  });
});
