import { RollbackResponseSchema } from '../gen/distributary/admin/v1/changes_pb.ts';
import {
  DiscardResponseSchema,
  FreezeResponseSchema,
  ReleaseResponseSchema,
  UnfreezeResponseSchema,
} from '../gen/distributary/admin/v1/rollout_pb.ts';
import { counted } from '../model/text.ts';
import { type Command, count, required, text, type, type ValuesOf } from './command.ts';
import { type AdminClient, type Answer, answer, relayCommand } from './relay-command.ts';

const flags = {
  upstream: text('U', 'only what comes from this upstream'),
  type: type('only this type'),
  reason: required(text('TEXT', 'why, for the log, the status and the history')),
} as const;

/** One command: what it tells of itself, what it asks, and what it prints of the answer. */
interface Operation {
  readonly name: string;
  readonly does: string;
  readonly about: string;
  readonly run: (rpc: AdminClient['rpc'], request: ValuesOf<typeof flags>) => Promise<Answer>;
}

const operation = ({ run, ...about }: Operation): Command =>
  relayCommand({
    ...about,
    flags,
    exit: '0, or 1 if the relay refuses, with the reason on stderr.',
    ask:
      (request) =>
      ({ rpc }) =>
        run(rpc, request),
  });

export const freeze = operation({
  name: 'freeze',
  does: 'clients keep what they have, until unfreeze',
  about: `Freezes changes: every client keeps what it has, until unfreeze. Without --upstream and --type this is
for everything, endpoints too. What is new still comes through.`,
  run: async (rpc, request) => answer(FreezeResponseSchema, await rpc.freeze(request), () => 'frozen'),
});

export const unfreeze = operation({
  name: 'unfreeze',
  does: 'ends a freeze',
  about: `Ends a freeze: give the --upstream and --type that were frozen, or neither to end all. What has changed meanwhile goes
through the rollout.`,
  run: async (rpc, request) => {
    const response = await rpc.unfreeze(request);
    const text = `not frozen any more; ${counted(response.pending, 'name')} pending`;
    return answer(UnfreezeResponseSchema, response, () => text);
  },
});

export const release = operation({
  name: 'release',
  does: 'a change that only canaries have: for everybody',
  about: `Gives everybody the change that only canaries have, whatever they say to it, and removes what is held back because it
is too much at once (max_removal_percent).`,
  run: async (rpc, request) => {
    const response = await rpc.release(request);
    return answer(ReleaseResponseSchema, response, () => `released: ${counted(response.released, 'name')}`);
  },
});

export const discard = operation({
  name: 'discard',
  does: 'a change that only canaries have: for nobody',
  about: `Drops the change that only canaries have: they go back to what everybody has. What upstream says next is judged anew.`,
  run: async (rpc, request) => {
    const response = await rpc.discard(request);
    return answer(DiscardResponseSchema, response, () => `discarded: ${counted(response.discarded, 'name')}`);
  },
});

export const rollback = relayCommand({
  name: 'rollback',
  does: 'the gated types as they were after a revision',
  about: `Gives everybody the gated types as they were after a revision, and freezes them: they stay so, whatever upstream says,
until unfreeze.`,
  flags: { to: required(count('REV', 'a revision (see history)', 0)), ...flags },
  exit: '0; 1 with the reason, and nothing has changed.',
  ask:
    (request) =>
    async ({ rpc }) => {
      const response = await rpc.rollback(request);
      const { changed, revision } = response;
      const text = `as at revision ${request.to}: ${counted(changed, 'resource')} changed, which is revision ${revision}; frozen until unfreeze`;
      return answer(RollbackResponseSchema, response, () => text);
    },
});
