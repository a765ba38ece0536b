import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { diskError } from '../../src/cache/persistence/records.ts';
import { resourceName, typeUrl } from '../../src/model/brand.ts';
import { systemClock } from '../../src/model/clock.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { createLog } from '../../src/observe/log.ts';
import { nothingSaved, RolloutFile, type SavedRollout } from '../../src/releases/rollout-file.ts';
import { errorCode } from '../../src/wire/node-error.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';

const web = { constraints: UNCONSTRAINED, payload: undefined, aliases: [], metadata: undefined };
const frozen: SavedRollout = {
  ...nothingSaved,
  freezes: [{ operator: 'me', reason: 'incident 7', since: 1 }],
};

describe('the file of what operators have closed', () => {
  it('hashes a variant once: what was found bad is compared at every look', () => {
    using directory = temporaryDirectory();
    const log = createLog({ format: 'text', write: () => {} });
    const file = new RolloutFile(directory.path, systemClock, log, () => {});
    let reads = 0;
    const variant = {
      ...web,
      get constraints() {
        reads++;
        return web.constraints;
      },
    };
    const first = file.hashOf(variant);
    const before = reads;
    expect(file.hashOf(variant)).to.equal(first);
    expect(reads).to.equal(before);
    expect(file.hashOf({ ...web })).to.deep.equal(first);
  });

  it('that cannot be written is tried again, less and less often, until it can; the log says so once', async () => {
    using directory = temporaryDirectory();
    const path = join(directory.path, 'kept');
    // Where its directory should be, there is a file.
    writeFileSync(path, 'no directory');
    const lines: string[] = [];
    const waits: { readonly milliseconds: number; readonly run: () => void }[] = [];
    const failures: unknown[] = [];
    const clock = {
      now: () => 1000,
      after: (milliseconds: number, run: () => void) => {
        waits.push({ milliseconds, run });
        return { cancel: () => {} };
      },
    };
    const log = createLog({ format: 'text', write: (line) => lines.push(line) });
    const file = new RolloutFile(path, clock, log, (error) => failures.push(error));
    file.save(frozen);
    await file.settled;
    expect(file.failure?.since).to.equal(1000);
    for (let attempt = 0; attempt < 5; attempt++) {
      waits.at(-1)?.run();
      await file.settled;
    }
    expect(waits.map(({ milliseconds }) => milliseconds)).to.deep.equal([
      5000, 10_000, 20_000, 40_000, 60_000, 60_000,
    ]);
    expect(failures.map(errorCode)).to.deep.equal(Array(6).fill('ENOTDIR'));
    expect(lines.filter((line) => line.includes('file cannot be written'))).to.have.length(1);

    renameSync(path, `${path}.moved`);
    mkdirSync(path);
    chmodSync(path, 0o700);
    waits.at(-1)?.run();
    await file.settled;
    expect(file.failure).to.equal(undefined);
    expect(waits, 'nothing is tried again').to.have.length(6);
    expect(existsSync(join(path, 'rollout.json'))).to.equal(true);
    expect(file.load().freezes).to.have.length(1);
  });

  it('of states that come while one is written only the newest follows', async () => {
    using directory = temporaryDirectory();
    const log = createLog({ format: 'text', write: () => {} });
    const file = new RolloutFile(directory.path, systemClock, log, () => {});
    for (const reason of ['first', 'second', 'third'])
      file.save({ ...frozen, freezes: [{ operator: 'me', reason, since: 1 }] });
    expect(existsSync(join(directory.path, 'rollout.json')), 'nobody waits').to.equal(false);
    await file.settled;
    expect(file.load().freezes.map(({ reason }) => reason)).to.deep.equal(['third']);
  });

  it('is not replaced while another process has the directory', async () => {
    using directory = temporaryDirectory();
    const log = createLog({ format: 'text', write: () => {} });
    const waits: (() => void)[] = [];
    const clock = {
      now: () => 0,
      after: (_: number, run: () => void) => {
        waits.push(run);
        return { cancel: () => {} };
      },
    };
    let isLocked = true;
    const obstacle = () => (isLocked ? new Error('another process has it open') : undefined);
    const file = new RolloutFile(directory.path, clock, log, () => {}, obstacle);
    const theirs = '{"of":"another version"}';
    writeFileSync(join(directory.path, 'rollout.json'), theirs);
    file.load();
    file.save(frozen);
    await file.settled;
    expect(file.failure?.reason).to.equal('another process has it open');
    expect(readdirSync(directory.path)).to.deep.equal(['rollout.json']);
    expect(readFileSync(join(directory.path, 'rollout.json'), 'utf8')).to.equal(theirs);
    isLocked = false;
    waits.at(-1)?.();
    await file.settled;
    expect([file.failure, file.load().freezes.length]).to.deep.equal([undefined, 1]);
    const aside = readdirSync(directory.path).filter((name) => name.includes('set-aside'));
    expect(aside, 'what it could not read').to.have.length(1);
  });

  it('is not written before it is known whether another process has the directory', async () => {
    using directory = temporaryDirectory();
    const log = createLog({ format: 'text', write: () => {} });
    const { promise: obstacle, resolve } = Promise.withResolvers<unknown>();
    const failures: unknown[] = [];
    const clock = { now: () => 0, after: () => ({ cancel: () => {} }) };
    const file = new RolloutFile(
      directory.path,
      clock,
      log,
      (error) => failures.push(error),
      () => obstacle,
    );
    file.save(frozen);
    await new Promise(setImmediate);
    expect([readdirSync(directory.path), failures]).to.deep.equal([[], []]);
    resolve(undefined);
    await file.settled;
    expect(file.load().freezes).to.have.length(1);
  });

  const keys: readonly (readonly [string, string])[] = [
    ['a part of one, of a write that found no space', ''],
    ['that of a process that had the directory before', 'x'.repeat(32)],
  ];
  for (const [title, there] of keys) {
    it(`has the key of its hashes beside it, where there was ${title}: what was discarded is known after a restart`, async () => {
      using directory = temporaryDirectory();
      const clock = { now: () => 0, after: () => ({ cancel: () => {} }) };
      const open = () =>
        new RolloutFile(directory.path, clock, createLog({ format: 'text', write: () => {} }), () => {});
      const file = open();
      const before = file.hashOf(web);
      writeFileSync(join(directory.path, 'rollout.key'), there);
      file.save(frozen);
      await file.settled;
      expect(open().hashOf(web)).to.deep.equal(before);
    });
  }

  it('leaves a key that it has not used', async () => {
    using directory = temporaryDirectory();
    const clock = { now: () => 0, after: () => ({ cancel: () => {} }) };
    const log = createLog({ format: 'text', write: () => {} });
    const key = join(directory.path, 'rollout.key');
    writeFileSync(key, 'cannot be read now');
    const file = new RolloutFile(directory.path, clock, log, () => {});
    file.save(frozen);
    await file.settled;
    expect(readFileSync(key, 'utf8')).to.equal('cannot be read now');
  });

  /** What is loaded of a file with this text, and what is said of it. */
  function loaded(directory: string, text: string) {
    writeFileSync(join(directory, 'rollout.json'), text);
    const lines: string[] = [];
    const failures: string[] = [];
    const log = createLog({ format: 'text', write: (line) => lines.push(line) });
    const clock = {
      now: () => 0,
      after: (_: number, run: () => void) => {
        run();
        return { cancel: () => {} };
      },
    };
    const file = new RolloutFile(directory, clock, log, (error) => failures.push(diskError(error).kind));
    const state = file.load();
    const aside = () => readdirSync(directory).filter((name) => name.includes('set-aside'));
    return { file, state, lines, failures, aside };
  }

  it('that cannot be read is counted, and said until the next state is written: then it is set aside', async () => {
    using directory = temporaryDirectory();
    const { file, state, lines, failures, aside } = loaded(directory.path, '{"freezes":[{"oper');
    expect(state.freezes).to.deep.equal([]);
    expect([lines.length, failures, aside()]).to.deep.equal([1, ['corrupt'], []]);
    expect(lines[0]).to.include('is not known');
    expect(file.unread?.since).to.equal(0);
    file.save(frozen);
    await file.settled;
    expect([file.unread, file.failure]).to.deep.equal([undefined, undefined]);
    expect([lines.length, aside().length]).to.deep.equal([2, 1]);
    expect(lines[1]).to.include(aside()[0]);
    expect(readFileSync(join(directory.path, String(aside()[0])), 'utf8')).to.equal('{"freezes":[{"oper');
    expect(file.load().freezes).to.have.length(1);
  });

  it('that cannot be read is under its name until the next state is: a crash leaves the one or the other', async () => {
    using directory = temporaryDirectory();
    const path = join(directory.path, 'rollout.json');
    writeFileSync(path, '{"freezes":[{"oper');
    const there: boolean[] = [];
    const write = (line: string): void => {
      if (line.includes('set aside')) there.push(existsSync(path));
    };
    const clock = { now: () => 0, after: () => ({ cancel: () => {} }) };
    const file = new RolloutFile(directory.path, clock, createLog({ format: 'text', write }), () => {});
    file.load();
    file.save(frozen);
    await file.settled;
    expect(there).to.deep.equal([true]);
  });

  it('names what canaries had, all of it or nothing: a part would be shown without the rest', async () => {
    const kept = async (names: number): Promise<number> => {
      using directory = temporaryDirectory();
      const { file } = loaded(directory.path, JSON.stringify({ ...frozen, canaries: [] }));
      const shown = Array.from({ length: names }, (_, at) => ({
        type: typeUrl('cds'),
        name: resourceName(`c${at}`),
      }));
      file.save({ ...frozen, shown });
      await file.settled;
      return file.load().shown.length;
    };
    expect([await kept(10_000), await kept(10_001)]).to.deep.equal([10_000, 0]);
  });

  it('of which a list cannot be read: the others are kept, on the disk too', () => {
    using directory = temporaryDirectory();
    const text = JSON.stringify({ ...frozen, canaries: [], discards: 'of another version' });
    const { file, state, failures } = loaded(directory.path, text);
    expect([state.freezes.length, state.discards, failures]).to.deep.equal([1, [], ['corrupt']]);
    expect(file.load().freezes).to.have.length(1);
  });

  it('of which a part of a list cannot be read: the rest of the list is kept', () => {
    using directory = temporaryDirectory();
    const content = { type: 'cds', name: 'a', hashes: [] };
    const verdict = { cause: 'rejected', reason: 'no', contents: [content] };
    const other = { of: 'another version' };
    const text = JSON.stringify({
      freezes: [other, ...frozen.freezes.map((one) => ({ ...one, since: 1e16 })), ...frozen.freezes],
      canaries: [other, ['node', 'class']],
      verdicts: [other, verdict],
      discards: [other, { ...content, reason: 'no' }],
      withheld: [other, ['cds', 'a']],
      shown: [other, ['cds', 'a']],
    });
    const { state, failures } = loaded(directory.path, text);
    expect(state.freezes.map(({ reason }) => reason)).to.deep.equal(['incident 7']);
    expect([...state.canaries]).to.deep.equal([['node', 'class']]);
    const { verdicts, discards, withheld, shown } = state;
    expect([verdicts, discards, withheld, shown].map(({ length }) => length)).to.deep.equal([1, 1, 1, 1]);
    expect(failures).to.deep.equal(['corrupt']);
  });

  it('what was found bad for a reason that this version does not know stays so', () => {
    using directory = temporaryDirectory();
    const verdict = { cause: 'weather', reason: 'no', contents: [] };
    const { state, lines } = loaded(
      directory.path,
      JSON.stringify({ ...frozen, canaries: [], verdicts: [verdict] }),
    );
    expect(state.verdicts.map(({ reason }) => reason)).to.deep.equal(['no']);
    expect(lines).to.deep.equal([]);
  });

  it('files that are set aside do not add up', async () => {
    using directory = temporaryDirectory();
    for (let time = 0; time < 5; time++) {
      const { file, aside } = loaded(directory.path, `${time}`);
      file.save(frozen);
      await file.settled;
      expect(aside()).to.have.length(Math.min(time + 1, 2));
    }
  });
});
