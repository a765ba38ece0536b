import type { Config } from '../config/config.ts';
import { loadConfig, withoutReferences } from '../config/load.ts';
import { type ConfigProblem, problemLine } from '../config/source.ts';
import { warnings } from '../config/warnings.ts';
import { watchConfig } from '../config/watch-config.ts';
import { Distributary } from '../distributary.ts';
import { collectAsHeldMemoryGrows } from '../external-memory.ts';
import { errorMessage, type Result } from '../model/result.ts';
import { printable } from '../model/text.ts';
import { createLog, type Log, logRuntimeWarnings } from '../observe/log.ts';
import { type LogFormat, type LogLevel, LogLevels } from '../observe/log-levels.ts';
import { startWatchdog } from '../observe/watchdog.ts';
import { version } from '../package/files.ts';
import { faultyNode } from './node-version.ts';
import { firstSignal, type Terminal } from './terminal.ts';

/** The relay from its start to its drain. 0 after that, 2 for a bad configuration, 1 for anything else. */
export async function serve(
  file: string,
  level: LogLevel,
  format: LogFormat,
  terminal: Terminal,
): Promise<number> {
  collectAsHeldMemoryGrows();
  process.stdout.on('error', () => {}); // a full disk: clients are served all the same
  const loaded = loadConfig(file, terminal.environment);
  if (!loaded.ok) {
    for (const problem of loaded.error) terminal.err(`${printable(problemLine(file, problem))}\n`);
    return 2;
  }
  const config = loaded.value;
  const logLevels = new LogLevels(level);
  const log = createLog({ levels: logLevels, format });
  logRuntimeWarnings(log);
  sayStart(config, log);
  warn(config, log);
  // Before anything is said to be ready: without a handler a signal would end the process as it is.
  const stopping = firstSignal('SIGTERM', 'SIGINT');
  // One that comes too early waits for the start.
  let isReloadAsked = false;
  let reload = (): void => {
    isReloadAsked = true;
  };
  // Also while it drains: without a handler the signal would end the process as it is.
  process.on('SIGHUP', () => reload());
  // Without a handler Node would open its debugger's port.
  process.on('SIGUSR1', () => log.warn('SIGUSR1 does nothing: send SIGHUP to reload the configuration'));
  const dependencies = { log, logLevels, version: version(), processMetrics: true };
  const mode =
    config.workers > 0 ? (await import('../workers/worker-serving.ts')).serveByWorkers(format) : undefined;
  const started = await Distributary.start(config, dependencies, mode);
  if (!started.ok) {
    log.error('cannot start', { error: started.error });
    // The exit code alone says nothing.
    if (!logLevels.enables('error')) terminal.err(`cannot start: ${printable(started.error)}\n`);
    stopping.release();
    return 1;
  }
  const failed = (error: unknown): void => log.error('the watchdog has exited', { error });
  // Not before: a start in one turn may take long on a busy machine, and the next one would take as long.
  const watchdog = startWatchdog(config.watchdog, format, failed);
  const distributary = started.value;
  for (const { name, address } of distributary.listeners) terminal.out(`listening ${name} ${address}\n`);
  const { environment } = terminal;
  const take = async (next: Result<Config, readonly ConfigProblem[]>): Promise<void> => {
    if (!next.ok) {
      const problems = next.error.map((problem) => problemLine(file, problem));
      refuseReload(problems, distributary, log);
      return;
    }
    warn(next.value, log);
    await distributary.announce(withoutReferences(next.value.source.text, environment));
    // It is not refused: nothing is reloaded any more.
    if (stopping.signal.aborted) return;
    const taken = distributary.reload(next.value);
    if (!taken.ok) refuseReload([`${file}: ${taken.error}`], distributary, log);
  };
  // One after the other: what changes is worked out while the old version is in force.
  let reloading = Promise.resolve();
  const watch = watchConfig(
    file,
    (read) => {
      reloading = reloading
        .then(() => take(read))
        .catch((error: unknown) => refuseReload([`${file}: ${errorMessage(error)}`], distributary, log));
    },
    { environment, inForce: config },
  );
  reload = () => watch.reload();
  if (isReloadAsked) reload();
  const signal = await stopping.promise;
  log.info('draining', { signal, milliseconds: config.drainTimeoutMs });
  watch.close();
  await distributary.drain();
  watchdog?.[Symbol.dispose]();
  log.info('drained');
  return 0;
}

/** Which relay this is: the first line of every log. */
function sayStart({ node, workers, source }: Config, log: Log): void {
  const fault = faultyNode(process.versions.node);
  log.info('the relay starts', {
    version: version(),
    node_id: node.id,
    configuration: source.digest,
    file: source.file,
    workers,
    node_js: process.version,
    ...(fault === undefined ? {} : { warning: fault }),
  });
}

function warn(config: Config, log: Log): void {
  const found = warnings(config);
  if (found.length === 0) return;
  log.warn('the configuration is accepted, with warnings', {
    warnings: found.map((warning) => problemLine(config.source.file, warning, 'warning')),
  });
}

function refuseReload(problems: readonly string[], distributary: Distributary, log: Log): void {
  distributary.refused(problems);
  log.error('the new configuration is refused; the previous one stays in use', { problems });
}
