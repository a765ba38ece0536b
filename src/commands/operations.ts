import {
  DiscardResponseSchema,
  FreezeResponseSchema,
  ReleaseResponseSchema,
  UnfreezeResponseSchema,
} from '../gen/distributary/admin/v1/rollout_pb.ts';
import { counted } from '../model/text.ts';
import type { AdminClient } from './admin-client.ts';
import { adminOptions, adminUsage } from './admin-client.ts';
import { type Command, defineCommand } from './command.ts';
import { jsonText } from './json-text.ts';
import { UsageError } from './usage.ts';
import { readType, shortTypes, withRelay } from './with-relay.ts';

interface Request {
  readonly upstream: string;
  readonly type: string;
  readonly reason: string;
}

/** What the relay answers: for people, and as it is. */
interface Done {
  readonly text: string;
  readonly json: string;
}

/** One command: what it tells of itself, what it asks, and what it prints of the answer. */
interface Operation {
  readonly name: string;
  readonly does: string;
  readonly run: (rpc: AdminClient['rpc'], request: Request) => Promise<Done>;
}

const options = {
  upstream: { type: 'string', default: '' },
  type: { type: 'string' },
  reason: { type: 'string', default: '' },
  ...adminOptions,
  json: { type: 'boolean' },
} as const;

const usageOf = ({
  name,
  does,
}: Operation): string => `Usage: distributary ${name} [--upstream U] [--type T] --reason TEXT [--admin URL] [--cert F --key F] [--ca F]
       [--json]

${does}

  --upstream U    only what comes from this upstream
  --type T        only this type: a type URL, or one of: ${shortTypes}
  --reason TEXT   why, for the log and the status; required
${adminUsage(16)}
  --json          as JSON
  -h, --help      this text

Exit: 0, or 1 if the relay refuses, with the reason on stderr.`;

function command(operation: Operation): Command {
  const usage = usageOf(operation);
  return defineCommand({
    usage,
    options,
    run: async ({ upstream, reason, ...values }, terminal) => {
      if (reason.trim() === '') return new UsageError('--reason is missing: say why', usage);
      const type = readType(values.type);
      if (!type.ok) return new UsageError(type.error, usage);
      return withRelay(values, usage, terminal, async ({ rpc }) => {
        const { text, json } = await operation.run(rpc, { upstream, reason, type: type.value });
        terminal.out(`${values.json === true ? json : text}\n`);
        return 0;
      });
    },
  });
}

export const freeze = command({
  name: 'freeze',
  does: `Freezes changes: nothing that is known changes for any client, until unfreeze. Without --upstream and --type this is
for everything, endpoints too. What is new still comes through.`,
  run: async (rpc, request) => {
    const response = await rpc.freeze(request);
    return { text: 'frozen', json: jsonText(FreezeResponseSchema, response) };
  },
});

export const unfreeze = command({
  name: 'unfreeze',
  does: `Ends a freeze: give the --upstream and --type that were frozen, or neither to end all. What has changed meanwhile goes
through the rollout.`,
  run: async (rpc, request) => {
    const response = await rpc.unfreeze(request);
    const text = `not frozen any more; ${counted(response.pending, 'name')} pending`;
    return { text, json: jsonText(UnfreezeResponseSchema, response) };
  },
});

export const release = command({
  name: 'release',
  does: `Gives everybody the change that only canaries have, whatever they say to it, and removes what is held back because it
is too much at once (max_removal_percent).`,
  run: async (rpc, request) => {
    const response = await rpc.release(request);
    const text = `released: ${counted(response.released, 'name')}`;
    return { text, json: jsonText(ReleaseResponseSchema, response) };
  },
});

export const discard = command({
  name: 'discard',
  does: `Drops the change that only canaries have: they go back to what everybody has. What upstream says next is judged anew.`,
  run: async (rpc, request) => {
    const response = await rpc.discard(request);
    const text = `discarded: ${counted(response.discarded, 'name')}`;
    return { text, json: jsonText(DiscardResponseSchema, response) };
  },
});
