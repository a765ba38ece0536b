import { Process } from './process.ts';
import { distributary, type RelayProcess } from './relay.ts';
import { clientsOf } from './relay-state.ts';

/** A command as users run it: its exit code, and what it printed: `err` on stderr, `out` altogether. */
export async function run(
  ...argv: readonly string[]
): Promise<{ readonly code: number | string; readonly out: string; readonly err: string }> {
  const child = new Process(distributary(...argv));
  const code = await child.exited;
  return { code, out: child.lines.join('\n'), err: child.errors.join('\n') };
}

/** What `explain` prints for a client, by the id of its node, and a resource. */
export async function explainedOf(
  relay: RelayProcess,
  node: string,
  type: string,
  name: string,
): Promise<string> {
  const client = (await clientsOf(relay)).find((one) => one.node.id === node);
  const asked = ['--type', type, '--name', name, '--client', client?.id ?? ''];
  return (await run('explain', '--admin', `http://${relay.admin}`, ...asked)).out;
}
