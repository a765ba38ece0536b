import { mkdirSync, renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { loadConfig } from '../../src/config/load.ts';
import { type ConfigWatch, type WatchOptions, watchConfig } from '../../src/config/watch-config.ts';
import type { Clock } from '../../src/model/clock.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { minimal, temporaryDirectory } from './support.ts';

const version = (id: string): string => `${minimal}node: { id: ${id} }\n`;

describe('configuration: watching', () => {
  const directory = temporaryDirectory();
  const path = (...names: readonly string[]): string => join(directory(), ...names);
  let watch: ConfigWatch | undefined;
  let seen: string[] = [];
  let wake: () => void = () => undefined;

  beforeEach(() => {
    seen = [];
  });
  afterEach(() => watch?.close());

  const start = (file: string, options: Partial<WatchOptions> = {}): void => {
    const report: Parameters<typeof watchConfig>[1] = (loaded) => {
      seen.push(
        loaded.ok ? loaded.value.node.id : `refused: ${loaded.error.map(({ path: at }) => at).join()}`,
      );
      wake();
    };
    watch = watchConfig(file, report, { environment: {}, ...options });
  };

  /** Until the last report is this one. */
  const until = async (last: string): Promise<void> => {
    while (seen.at(-1) !== last) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };

  it('a file written in place', async () => {
    writeFileSync(path('c.yaml'), version('one'));
    start(path('c.yaml'));
    writeFileSync(path('c.yaml'), version('two'));
    await until('two');
    expect(seen).to.deep.equal(['two']);
  });

  it('what was refused for a file that it names is taken when that is there, and the refusal is told once', () => {
    const clock = new VirtualClock();
    const files = path('files');
    writeFileSync(path('c.yaml'), version('one'));
    start(path('c.yaml'), { clock });
    writeFileSync(
      path('c.yaml'),
      `upstreams: [{ name: a, filesystem: { path: ${files} } }]\nnode: { id: two }\n`,
    );
    watch?.reload();
    clock.advance(60_000);
    expect(seen).to.deep.equal(['refused: upstreams[0].filesystem.path']);
    mkdirSync(files);
    clock.advance(15_000);
    expect(seen.at(-1)).to.equal('two');
    clock.advance(60_000);
    expect(seen).to.have.lengthOf(2);
  });

  it("an editor's rename over it, several times", async () => {
    writeFileSync(path('c.yaml'), version('one'));
    start(path('c.yaml'));
    for (const id of ['two', 'three', 'four']) {
      writeFileSync(path('.c.yaml.swp'), version(id));
      renameSync(path('.c.yaml.swp'), path('c.yaml'));
      await until(id);
    }
    expect(seen).to.deep.equal(['two', 'three', 'four']);
  });

  it("a ConfigMap's swap of ..data, several times", async () => {
    const publish = (id: string): void => {
      mkdirSync(path(`..${id}`));
      writeFileSync(path(`..${id}`, 'c.yaml'), version(id));
      symlinkSync(`..${id}`, path('..data_tmp'));
      renameSync(path('..data_tmp'), path('..data'));
    };
    publish('one');
    symlinkSync('..data/c.yaml', path('c.yaml'));
    start(path('c.yaml'));
    publish('two');
    rmSync(path('..one'), { recursive: true });
    await until('two');
    publish('three');
    await until('three');
    expect(seen).to.deep.equal(['two', 'three']);
  });

  it('a swap of a link above the directory, and a write to where links lead', async () => {
    for (const id of ['one', 'two']) {
      mkdirSync(path(id));
      writeFileSync(path(id, 'c.yaml'), version(id));
    }
    symlinkSync('one', path('current'));
    start(path('current', 'c.yaml'));
    symlinkSync('two', path('next'));
    renameSync(path('next'), path('current'));
    await until('two');
    writeFileSync(path('two', 'c.yaml'), version('three'));
    await until('three');
  });

  it('a directory that goes away and comes back', async () => {
    mkdirSync(path('etc'));
    writeFileSync(path('etc', 'c.yaml'), version('one'));
    start(path('etc', 'c.yaml'));
    rmSync(path('etc'), { recursive: true });
    await until('refused: ');
    mkdirSync(path('etc'));
    writeFileSync(path('etc', 'c.yaml'), version('two'));
    await until('two');
  });

  it('a bad version is reported as its problems, the next good one is taken', async () => {
    writeFileSync(path('c.yaml'), version('one'));
    start(path('c.yaml'));
    writeFileSync(path('c.yaml'), `${minimal}wrkers: 1\n`);
    await until('refused: wrkers');
    writeFileSync(path('c.yaml'), version('two'));
    await until('two');
    expect(seen).to.deep.equal(['refused: wrkers', 'two']);
  });

  it('SIGHUP reads again and reports even what has not changed', () => {
    writeFileSync(path('c.yaml'), version('one'));
    start(path('c.yaml'));
    watch?.reload();
    writeFileSync(path('c.yaml'), 'upstreams: []\n');
    watch?.reload();
    expect(seen).to.deep.equal(['one', 'refused: upstreams']);
  });

  it('a change between the loading and the watching is not lost', async () => {
    writeFileSync(path('c.yaml'), version('one'));
    const loaded = loadConfig(path('c.yaml'), {});
    if (!loaded.ok) throw new Error('not loaded');
    writeFileSync(path('c.yaml'), version('two'));
    start(path('c.yaml'), { inForce: loaded.value });
    await until('two');
  });

  describe('with a clock and a file system of its own', () => {
    let now = 0;
    let timers: { readonly at: number; readonly run: () => void }[] = [];
    let touch: () => void = () => undefined;
    const clock: Clock = {
      now: () => now,
      monotonic: () => now,
      after(milliseconds, run) {
        const timer = { at: now + milliseconds, run };
        timers.push(timer);
        return { cancel: () => void (timers = timers.filter((other) => other !== timer)) };
      },
    };
    const pass = (milliseconds: number): void => {
      now += milliseconds;
      const due = timers.filter(({ at }) => at <= now);
      timers = timers.filter(({ at }) => at > now);
      for (const { run } of due) run();
    };
    const seams: Partial<WatchOptions> = {
      clock,
      watchDirectory: (_, changed) => {
        touch = changed;
        return { close: () => undefined };
      },
    };

    beforeEach(() => {
      now = 0;
      timers = [];
      writeFileSync(path('c.yaml'), version('one'));
      start(path('c.yaml'), seams);
    });

    it('many events are one version', () => {
      for (const id of ['two', 'three', 'four']) {
        writeFileSync(path('c.yaml'), version(id));
        touch();
        pass(50);
      }
      expect(seen).to.deep.equal([]);
      pass(100);
      expect(seen).to.deep.equal(['four']);
      expect(timers).to.deep.equal([]);
    });

    it('events that never cease do not hold a version back', () => {
      writeFileSync(path('c.yaml'), version('two'));
      for (let event = 0; event < 25; event++) {
        touch();
        pass(50);
      }
      expect(seen).to.deep.equal(['two']);
    });

    it('a touched file with the same content is no version', () => {
      utimesSync(path('c.yaml'), 1, 1);
      touch();
      pass(100);
      expect(seen).to.deep.equal([]);
    });

    it('nothing is reported after close', () => {
      writeFileSync(path('c.yaml'), version('two'));
      touch();
      watch?.close();
      touch();
      pass(5000);
      watch?.reload();
      expect(seen).to.deep.equal([]);
    });
  });
});
