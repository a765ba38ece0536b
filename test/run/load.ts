import { type ChildProcess, spawn } from 'node:child_process';

/** Busy loops that compete with the tests, until it is disposed of. */
export function compete(count: number): Disposable {
  const loops: readonly ChildProcess[] = Array.from({ length: count }, () =>
    spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }),
  );
  const end = (): void => {
    for (const loop of loops) loop.kill('SIGKILL');
  };
  process.once('exit', end);
  return { [Symbol.dispose]: end };
}
