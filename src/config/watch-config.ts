import { readlinkSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { type Clock, Settling, systemClock, type Timer } from '../model/clock.ts';
import type { Result } from '../model/result.ts';
import { DirectoryWatches, linksOnTheWay, type WatchDirectory } from '../wire/directory-watches.ts';
import type { Config } from './config.ts';
import type { Environment } from './document.ts';
import { digest, loadConfig, readConfigText } from './load.ts';
import type { ConfigProblem } from './source.ts';

export type ConfigWatch = ReturnType<typeof watchConfig>;

export interface WatchOptions {
  readonly environment: Environment;
  /** What was loaded before; left out: the file as it is now. */
  readonly inForce?: Config;
  readonly clock?: Clock;
  readonly watchDirectory?: WatchDirectory;
}

/** Writers need a moment for several steps. */
const settlingTimes = { quiet: 100, longest: 1000 };
/** What is refused is checked again so often: a Secret that it names may come a minute after its ConfigMap. Milliseconds. */
const againMs = 15_000;

/**
 * Reports each new version of a configuration: checked, its files too, or why it must be refused (the caller keeps the
 * old one in force). Call it right after the version in force was loaded. A file that was touched but has the content
 * of before is no new version. One that is refused is reported again when other things are wrong with it, or none.
 */
export function watchConfig(
  file: string,
  onChange: (loaded: Result<Config, readonly ConfigProblem[]>) => void,
  options: WatchOptions,
) {
  const { environment, clock = systemClock, watchDirectory } = options;
  const settling = new Settling(clock, settlingTimes, () => look(false));
  const watches = new DirectoryWatches(() => settling.touch(), watchDirectory);
  let closed = false;
  let seen = options.inForce?.source.digest ?? fingerprint(readConfigText(file));
  let again: Timer | undefined;

  /** Anew each time: a directory of the same name may be another one by now. */
  const follow = (): void => {
    watches.close();
    for (const directory of directoriesOf(file)) watchNearest(directory, watches);
  };

  /** `told`: what is wrong with the version that is checked again. */
  const look = (always: boolean, told?: readonly ConfigProblem[]): void => {
    if (closed) return;
    settling.cancel();
    // Before reading: what changes from here on is seen by the new watches.
    follow();
    const text = readConfigText(file);
    const now = fingerprint(text);
    const isSeen = now === seen;
    if (isSeen && !always) return;
    seen = now;
    const loaded = loadConfig(file, environment, text);
    again?.cancel();
    if (!loaded.ok) {
      const { error } = loaded;
      again = clock.after(againMs, () => look(true, error));
      if (isSeen && JSON.stringify(error) === JSON.stringify(told)) return;
    }
    onChange(loaded);
  };

  follow();
  // It may have changed between the reading of the version in force and now.
  if (fingerprint(readConfigText(file)) !== seen) settling.touch();
  return {
    /** SIGHUP: reads the file again and reports, even if nothing changed. */
    reload: () => look(true),
    close(): void {
      closed = true;
      settling.cancel();
      again?.cancel();
      watches.close();
    },
  };
}

/**
 * The directories in which something must change for the file's content to change: its own, that of each symbolic
 * link on the way to it (a ConfigMap's `..data`), and that of what the links lead to.
 */
function directoriesOf(file: string): ReadonlySet<string> {
  const directories = new Set([dirname(resolve(file))]);
  const walk = linksOnTheWay(file);
  let step = walk.next();
  while (step.done !== true) {
    const target = linkTarget(step.value);
    if (target !== undefined) directories.add(dirname(step.value));
    step = walk.next(target);
  }
  return directories.add(dirname(step.value));
}

/** A directory that is not there (yet again) is waited for in the nearest one above it. */
function watchNearest(directory: string, watches: DirectoryWatches): void {
  const above = dirname(directory);
  if (!watches.add(directory) && above !== directory) watchNearest(above, watches);
}

const fingerprint = (text: Result<string>): string =>
  text.ok ? digest(text.value) : `unreadable: ${text.error}`;

function linkTarget(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}
