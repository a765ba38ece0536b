import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { type ClientKind, clientsOfLongTest, clientsOfTest } from './clients.ts';
import { controlPlaneBinary } from './controlplane.ts';
import { type Arrived, type Journey, takeAllSteps, titles } from './journey.ts';
import { root } from './paths.ts';
import { relayCommand } from './relay.ts';
import { need } from './skip.ts';

type Row = readonly string[];

const page = join(root, 'docs/compatibility.md');
const start = '<!-- The tests write this table: npm run compatibility -->\n\n';
export const header: Row = ['client', 'version', 'asks by', ...titles, 'name that never existed'];

const line = (cells: Row): string => `| ${cells.join(' | ')} |`;

/** The rows of docs/compatibility.md, the header first. */
export function table(): readonly Row[] {
  const [, rest = ''] = readFileSync(page, 'utf8').split(start);
  const lines = rest.slice(0, rest.indexOf('\n\n')).split('\n');
  return lines
    .filter((text) => !text.startsWith('|-'))
    .map((text) =>
      text
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );
}

/** The rows of this run, of several suites if they are in one process. */
const found = new Map<ClientKind, Row>();

/** Rows of clients that this run has not tried stay. */
function write(): void {
  const before = table();
  const rows = [...clientsOfTest, ...clientsOfLongTest].flatMap((kind) => {
    const row = found.get(kind) ?? before.find((row) => isOf(row, kind));
    return row === undefined ? [] : [row];
  });
  const lines = [line(header), `|${'-|'.repeat(header.length)}`, ...rows.map(line)];
  const [head = '', rest = ''] = readFileSync(page, 'utf8').split(start);
  writeFileSync(page, `${head}${start}${lines.join('\n')}${rest.slice(rest.indexOf('\n\n'))}`);
}

export function isOf([name, version, transport]: Row, kind: ClientKind): boolean {
  return name === kind.name && transport === kind.transport && version === (kind.version ?? version);
}

/** REST has no NACK: what is looked at is that the client keeps what it had. */
const cellOf = ({ streams }: ClientKind, title: string): string =>
  streams === undefined && title === 'NACK' ? 'keeps what it had' : 'yes';

/** The kind was found on this machine; else the test is skipped, or fails in CI. */
async function prepare(context: Mocha.Context, kind: ClientKind): Promise<Journey> {
  await need(context, relayCommand());
  const start = await need(context, kind.find());
  return { kind, start, controlPlaneBinary: await need(context, controlPlaneBinary()) };
}

/** Tests of these clients: a journey of each, and the name that never existed for all at once, because it takes 15 s. */
export function describeClients(kinds: readonly ClientKind[]): void {
  const arrived = new Map<ClientKind, Arrived>();

  after(() => Promise.all([...arrived.values()].map((one) => one[Symbol.asyncDispose]())));

  for (const kind of kinds) {
    it(`${kind.title}: ${titles.join(', ')}`, async function () {
      const journey = await prepare(this, kind);
      arrived.set(kind, await takeAllSteps(journey));
    });
  }

  it('§10.2 a name that never existed: requests fail after 15 s, others go on, and it is found once it exists', async function () {
    if (arrived.size === 0) this.skip();
    const ends = await Promise.allSettled(
      [...arrived].map(async ([kind, { version, missingName }]) => {
        await missingName();
        found.set(kind, [
          kind.name,
          version,
          kind.transport,
          ...titles.map((title) => cellOf(kind, title)),
          kind.missing.name,
        ]);
      }),
    );
    expect(ends.flatMap((end) => (end.status === 'rejected' ? [String(end.reason)] : []))).to.deep.equal([]);
  });

  it('docs/compatibility.md has what this run has found (else: npm run compatibility)', () => {
    if (process.env['COMPATIBILITY'] === 'write') write();
    expect(table()).to.deep.include.members([...found.values()]);
  });
}
