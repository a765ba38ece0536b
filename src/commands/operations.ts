import type { Message } from '@bufbuild/protobuf';
import type { SetLogLevelResponse } from '../gen/distributary/admin/v1/log_pb.ts';
import type { CheckResponse } from '../gen/distributary/admin/v1/rollout_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { anyOf, counted, printable } from '../model/text.ts';
import { levels } from '../observe/log-levels.ts';
import { textTable, type View } from '../observe/text-table.ts';
import {
  type Command,
  count,
  type Definition,
  duration,
  type Flags,
  oneOf,
  required,
  text,
  toggle,
  type,
  UsageError,
  type ValuesOf,
} from './command.ts';
import { type AdminClient, answer, relayCommand } from './relay-command.ts';

const flags = {
  upstream: text('U', 'only what comes from this upstream'),
  type: type('only this type'),
  reason: required(text('TEXT', 'why, for the log, the status and the history')),
} as const;

/** One command: what it tells of itself, what it asks, and what it prints of the answer. */
const operation = <Response extends Message, const Declared extends Flags = typeof flags>(
  about: Pick<Definition<Declared>, 'name' | 'does' | 'about' | 'flags'> & { readonly exit?: string },
  ask: (rpc: AdminClient['rpc'], request: ValuesOf<Declared>) => Promise<Response>,
  text: (response: Response, request: ValuesOf<Declared>) => string,
): Command =>
  relayCommand({
    exit: '0, or 1 if the relay refuses, with the reason on stderr.',
    ...about,
    ask:
      (request) =>
      async ({ rpc }) => {
        const response = await ask(rpc, request);
        return answer(response, () => text(response, request));
      },
  });

export const freeze = operation(
  {
    name: 'freeze',
    does: 'freezes changes: clients keep what they have, until unfreeze',
    about: `Freezes changes: every client keeps what it has until unfreeze. Without --upstream and --type this applies
to everything, endpoints too. New resources still come through.`,
    flags,
  },
  (rpc, request) => rpc.freeze(request),
  () => 'frozen',
);

export const unfreeze = operation(
  {
    name: 'unfreeze',
    does: 'ends a freeze',
    about: `Ends a freeze: give the --upstream and --type that were frozen, or neither to end all freezes. Changes made meanwhile go
through the rollout.`,
    flags,
  },
  (rpc, request) => rpc.unfreeze(request),
  ({ pending }) => `unfrozen; ${counted(pending, 'name')} pending`,
);

export const promote = operation(
  {
    name: 'promote',
    does: 'ends the wave of a change now',
    about: `Ends the wave that a change is in now (rollout.waves): it goes to the next wave, or to everybody after the last one. With
mode: MANUAL each wave waits for this. What is held is not promoted: release or discard it.`,
    flags: { ...flags, wave: count('N', 'only what is in this wave: twice by accident ends it once', 0) },
  },
  (rpc, request) => rpc.promote(request),
  ({ promoted, wave, waves }) =>
    `promoted: ${counted(promoted, 'name')}; wave ${wave} of ${waves} is over${wave >= waves ? ', everybody gets it' : ''}`,
);

export const release = operation(
  {
    name: 'release',
    does: 'gives everybody the change that only canaries have',
    about: `Gives everybody the change that only canaries have, whatever they answer, and makes the removals that were held
back because they are too many at once (max_removal_percent).`,
    flags,
  },
  (rpc, request) => rpc.release(request),
  ({ released }) => `released: ${counted(released, 'name')}`,
);

export const discard = operation(
  {
    name: 'discard',
    does: 'drops the change that only canaries have',
    about: `Drops the change that only canaries have: they go back to what everybody has. The next change from upstream is judged anew.`,
    flags,
  },
  (rpc, request) => rpc.discard(request),
  ({ discarded }) => `discarded: ${counted(discarded, 'name')}`,
);

export const rollback = operation(
  {
    name: 'rollback',
    does: 'gives everybody the gated types as they were after a revision',
    about: `Gives everybody the gated types as they were after a revision, and freezes them until unfreeze, whatever
upstream sends.`,
    flags: { to: required(count('REV', 'a revision (see history)', 0)), ...flags },
    exit: '0; 1 with the reason on stderr, and nothing has changed.',
  },
  (rpc, request) => rpc.rollback(request),
  ({ changed, revision }, { to }) =>
    `rolled back to revision ${to}: ${counted(changed, 'resource')} changed (revision ${revision}); frozen until unfreeze`,
);

export const check = relayCommand({
  name: 'check',
  does: 'asks a check of the rollout now',
  about: `Asks one of rollout.checks now and prints what it says. This does not count for a change that waits.`,
  flags: { name: required(text('NAME', 'one of rollout.checks')) },
  exit: '0 GOOD; 1 BAD or UNKNOWN, with the reason on stderr too, or the relay does not answer.',
  ask:
    ({ name }) =>
    async ({ rpc }) => {
      const response = await rpc.check({ name });
      const text = () => checkText(response);
      return answer(response, text, response.check?.state === 'GOOD' ? undefined : text);
    },
});

const checkText = ({ check: said }: CheckResponse): string =>
  said === undefined ? '' : printable(`${said.name}: ${said.state}: ${said.reason}`);

const logFlags = {
  node: text(
    'ID',
    'only lines about this node id (see clients), and about streams refused before their node is known; without it, all lines',
  ),
  level: oneOf('LEVEL', levels, levels.join(', ')),
  for: duration('TIME', 'how long, as in 30s, 10m or 1h; default 10m, at most 24h'),
  reset: toggle('end an earlier change now'),
} as const;

export const log = relayCommand({
  name: 'log',
  does: 'changes the log level for a limited time',
  about: `Changes the log level of a running relay for a limited time, in all its processes. After that, the level from its start applies
again.`,
  usage: '(--level LEVEL [--for TIME] | --reset)',
  flags: logFlags,
  exit: '0, with the levels in force; 1 if the relay refuses or does not answer.',
  ask: ({ node, ...given }) => {
    const request = readRequest(given);
    if (!request.ok) return new UsageError(request.error);
    return async ({ rpc }) => {
      const response = await rpc.setLogLevel({ node, ...request.value });
      return answer(response, (view) => levelText(response, view));
    };
  },
});

/** Level empty: the one of the start again. Seconds 0: the relay's default. */
function readRequest({
  level,
  for: time,
  reset,
}: Omit<ValuesOf<typeof logFlags>, 'node'>): Result<{ readonly level: string; readonly forSeconds: number }> {
  if (reset) {
    return level === undefined && time === undefined
      ? ok({ level: '', forSeconds: 0 })
      : fail('--reset excludes --level and --for');
  }
  if (level === undefined) return fail(`--level is missing: expected ${anyOf(levels)}, or --reset`);
  if (time === 0) return fail('--for 0 is too short: to end an earlier change, use --reset');
  return ok({ level, forSeconds: (time ?? 0) / 1000 });
}

function levelText({ level, overrides }: SetLogLevelResponse, view: View): string {
  if (overrides.length === 0) return `log level ${level}`;
  const table = textTable(overrides, [['NODE', ({ node }) => node || '(all)'], 'level', 'until'], view);
  return `log level ${level}, with these exceptions\n${table}`;
}
