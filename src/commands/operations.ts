import type { AdminClient } from './admin-client.ts';
import { adminOptions, adminUsage } from './admin-client.ts';
import { parse, processTerminal, refuse, type Terminal, UsageError } from './usage.ts';
import { readType, shortTypes, withRelay } from './with-relay.ts';

interface Request {
  readonly upstream: string;
  readonly type: string;
  readonly reason: string;
}

/** One command: what it tells of itself, what it asks, and what it prints of the answer. */
interface Operation {
  readonly name: string;
  readonly does: string;
  readonly run: (rpc: AdminClient['rpc'], request: Request) => Promise<string>;
}

const options = {
  upstream: { type: 'string', default: '' },
  type: { type: 'string' },
  reason: { type: 'string', default: '' },
  ...adminOptions,
} as const;

const usageOf = ({
  name,
  does,
}: Operation): string => `Usage: distributary ${name} [--upstream U] [--type T] --reason TEXT [--admin URL] [--cert F --key F] [--ca F]

${does}

  --upstream U    only what comes from this upstream
  --type T        only this type: a type URL, or one of: ${shortTypes}
  --reason TEXT   why, for the log and the status; required
${adminUsage(16)}
  -h, --help      this text

Exit: 0, or 1 if the relay refuses, with the reason on stderr.`;

type Command = (argv: readonly string[], terminal?: Terminal) => Promise<number>;

function command(operation: Operation): Command {
  return async (argv, terminal = processTerminal) => {
    const usage = usageOf(operation);
    const parsed = parse(argv, options, usage);
    if (!parsed.ok) return refuse(parsed.error, terminal);
    const { help, upstream, reason, ...values } = parsed.value;
    if (help === true) {
      terminal.out(`${usage}\n`);
      return 0;
    }
    if (reason.trim() === '') return refuse(new UsageError('--reason is missing: say why', usage), terminal);
    const type = readType(values.type);
    if (!type.ok) return refuse(new UsageError(type.error, usage), terminal);
    return withRelay(values, usage, terminal, async ({ rpc }) => {
      terminal.out(`${await operation.run(rpc, { upstream, reason, type: type.value })}\n`);
      return 0;
    });
  };
}

const names = (count: number): string => (count === 1 ? '1 name' : `${count} names`);

export const freeze = command({
  name: 'freeze',
  does: `Freezes changes: nothing that is known changes for any client, until unfreeze. Without --upstream and --type this is
for everything, endpoints too. What is new still comes through.`,
  run: async (rpc, request) => {
    await rpc.freeze(request);
    return 'frozen';
  },
});

export const unfreeze = command({
  name: 'unfreeze',
  does: `Ends a freeze: give the --upstream and --type that were frozen, or neither to end all. What has changed meanwhile goes
through the rollout.`,
  run: async (rpc, request) => {
    const { pending } = await rpc.unfreeze(request);
    return `not frozen any more; ${names(pending)} pending`;
  },
});

export const release = command({
  name: 'release',
  does: 'Gives everybody the change that only canaries have, whatever they say to it.',
  run: async (rpc, request) => {
    const { released } = await rpc.release(request);
    return `released: ${names(released)}`;
  },
});

export const discard = command({
  name: 'discard',
  does: `Drops the change that only canaries have: they go back to what everybody has. What upstream says next is judged anew.`,
  run: async (rpc, request) => {
    const { discarded } = await rpc.discard(request);
    return `discarded: ${names(discarded)}`;
  },
});
