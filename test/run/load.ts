import { type ChildProcess, spawn } from 'node:child_process';

/** Ends with its parent, even if that is killed before the loop begins. */
const loop = `while (process.ppid === ${process.pid});`;

/** Busy loops that compete with the tests, until it is disposed of. */
export function compete(count: number): Disposable {
  const loops: readonly ChildProcess[] = Array.from({ length: count }, () =>
    spawn(process.execPath, ['-e', loop], { stdio: 'ignore' }),
  );
  const end = (): void => {
    for (const one of loops) one.kill('SIGKILL');
  };
  process.once('exit', end);
  return { [Symbol.dispose]: end };
}
