import { printable, unknownWord } from '../model/text.ts';
import { version } from '../package/files.ts';
import { run } from './run.ts';

/** The command `distributary` with what follows it: its exit code. */
export async function commandLine(argv: readonly string[]): Promise<number> {
  const [name, ...rest] = argv;
  if (name === '--version') {
    process.stdout.write(`${version()}\n`);
    return 0;
  }
  // The other commands are not even loaded: a relay would have them in its memory for ever.
  if (name === 'run') return run(rest);
  const ended = shows.has(name ?? '') && !rest.includes('--check') ? 0 : brokenPipe;
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE') process.exit(ended);
      throw error;
    });
  const { commands, usage, usageLine } = await import('./commands.ts');
  if (name === '--help' || name === '-h' || name === 'help') {
    process.stdout.write(usage());
    return 0;
  }
  if (name === undefined) {
    process.stderr.write(`a command is missing\n\n${usage()}`);
    return 2;
  }
  const command = commands.find((one) => one.name === name);
  if (command !== undefined) return command(rest);
  const names = commands.map((one) => one.name);
  process.stderr.write(
    `${printable(unknownWord('command', name, names))}\n\n${usageLine}\n\ndistributary --help lists the commands.\n`,
  );
  return 2;
}

/** What these print is all there is: once `head` has its lines, there is nothing more to do. */
const shows = new Set(
  'clients completion diff get help history load resources status tap version --help -h'.split(' '),
);
/** As if ended by SIGPIPE. What another command finds out nobody has read: a pipeline must not take that for a yes. */
const brokenPipe = 141;
