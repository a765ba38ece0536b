import { lstatSync, readlinkSync, watch } from 'node:fs';
import { dirname, isAbsolute, join, parse, resolve, sep } from 'node:path';
import { type Clock, systemClock, type Timer } from '../model/clock.ts';
import { fail, type Result } from '../model/result.ts';
import type { Config } from './config.ts';
import type { Environment } from './environment.ts';
import { checkConfig, digest, readConfigText, unreadable } from './load.ts';
import type { ConfigProblem } from './source.ts';

export interface ConfigWatch {
  /** SIGHUP: reads the file again and reports, even if nothing changed. */
  reload(): void;
  close(): void;
}

export interface WatchOptions {
  readonly environment: Environment;
  /** What was loaded before; left out: the file as it is now. */
  readonly inForce?: Config;
  readonly clock?: Clock;
  readonly watchDirectory?: WatchDirectory;
}

/** Calls `changed` when an entry of a directory is made, moved or written. Undefined: it cannot be watched. */
type WatchDirectory = (directory: string, changed: () => void) => Closable | undefined;

interface Closable {
  close(): void;
}

/** Writers need a moment for several steps; one that never rests is read all the same. */
const quietMs = 100;
const latestMs = 1000;

/**
 * Reports each new version of a configuration: checked, its files too, or why it must be refused (the old one stays in
 * force: that is the caller's part). Call it right after the version in force was loaded. A file that was touched but
 * has the content of before is no new version.
 */
export function watchConfig(
  file: string,
  onChange: (loaded: Result<Config, readonly ConfigProblem[]>) => void,
  options: WatchOptions,
): ConfigWatch {
  const { environment, clock = systemClock, watchDirectory = watchWithFs } = options;
  let watches: readonly Closable[] = [];
  let waiting: { readonly timer: Timer; readonly since: number } | undefined;
  let closed = false;
  let seen = options.inForce?.source.digest ?? fingerprint(readConfigText(file));

  const changed = (): void => {
    if (closed) return;
    const since = waiting?.since ?? clock.now();
    waiting?.timer.cancel();
    const wait = Math.max(0, Math.min(quietMs, since + latestMs - clock.now()));
    waiting = { since, timer: clock.after(wait, () => settle(false)) };
  };

  /** Anew each time: a directory of the same name may be another one by now. */
  const follow = (): void => {
    for (const handle of watches) handle.close();
    watches = [...directoriesOf(file)].flatMap((directory) =>
      watchNearest(directory, changed, watchDirectory),
    );
  };

  const settle = (always: boolean): void => {
    if (closed) return;
    waiting?.timer.cancel();
    waiting = undefined;
    // Before reading: what changes from here on is seen by the new watches.
    follow();
    const text = readConfigText(file);
    const now = fingerprint(text);
    if (now === seen && !always) return;
    seen = now;
    onChange(text.ok ? checkConfig(text.value, file, environment) : fail([unreadable(text.error)]));
  };

  follow();
  // It may have changed between the reading of the version in force and now.
  if (fingerprint(readConfigText(file)) !== seen) changed();
  return {
    reload: () => settle(true),
    close() {
      closed = true;
      waiting?.timer.cancel();
      for (const handle of watches) handle.close();
      watches = [];
    },
  };
}

/**
 * The directories in which something must change for the file's content to change: its own, that of each symbolic
 * link on the way to it (a ConfigMap's `..data`), and that of what the links lead to.
 */
function directoriesOf(file: string): ReadonlySet<string> {
  const directories = new Set([dirname(resolve(file))]);
  let left = 40;
  const walk = (path: string): string => {
    let real = parse(path).root;
    for (const step of path.slice(real.length).split(sep)) {
      const here = join(real, step);
      const target = linkTarget(here);
      if (target === undefined || left-- <= 0) {
        real = here;
        continue;
      }
      directories.add(real);
      real = walk(isAbsolute(target) ? target : resolve(real, target));
    }
    return real;
  };
  directories.add(dirname(walk(resolve(file))));
  return directories;
}

/** A directory that is not there (yet again) is waited for in the nearest one above it. */
function watchNearest(
  directory: string,
  changed: () => void,
  watchDirectory: WatchDirectory,
): readonly Closable[] {
  const handle = watchDirectory(directory, changed);
  if (handle !== undefined) return [handle];
  const above = dirname(directory);
  return above === directory ? [] : watchNearest(above, changed, watchDirectory);
}

const fingerprint = (text: Result<string>): string =>
  text.ok ? digest(text.value) : `unreadable: ${text.error}`;

function linkTarget(path: string): string | undefined {
  try {
    return lstatSync(path).isSymbolicLink() ? readlinkSync(path) : undefined;
  } catch {
    return undefined;
  }
}

const watchWithFs: WatchDirectory = (directory, changed) => {
  try {
    const watcher = watch(directory, { persistent: false }, changed);
    // The directory was removed, say: what is left to do is to look again.
    watcher.on('error', changed);
    return watcher;
  } catch {
    return undefined;
  }
};
