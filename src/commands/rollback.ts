import { RollbackResponseSchema } from '../gen/distributary/admin/v1/changes_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { adminOptions, adminUsage } from './admin-client.ts';
import { defineCommand } from './command.ts';
import { jsonText } from './json-text.ts';
import { UsageError } from './usage.ts';
import { readCount, readType, shortTypes, withRelay } from './with-relay.ts';

const usage = `Usage: distributary rollback --to REV [--upstream U] [--type T] --reason TEXT [--admin URL] [--cert F --key F]
       [--ca F] [--json]

Gives everybody the gated types as they were after a revision, and freezes them: they stay so, whatever upstream says,
until unfreeze.

  --to REV        a revision (see history)
  --upstream U    only what came from this upstream
  --type T        only this type: a type URL, or one of: ${shortTypes}
  --reason TEXT   for the log and the history
${adminUsage(16)}
  --json          as JSON
  -h, --help      this text

Exit: 0; 1 with the reason, and nothing has changed.`;

const options = {
  to: { type: 'string' },
  upstream: { type: 'string' },
  type: { type: 'string' },
  reason: { type: 'string' },
  ...adminOptions,
  json: { type: 'boolean' },
} as const;

/** The command `rollback`: its exit code. */
export const rollback = defineCommand({
  usage,
  options,
  run: async (values, terminal) => {
    const request = readRequest(values);
    if (!request.ok) return new UsageError(request.error, usage);
    return withRelay(values, usage, terminal, async ({ rpc }) => {
      const response = await rpc.rollback(request.value);
      const { changed, revision } = response;
      const text =
        values.json === true
          ? jsonText(RollbackResponseSchema, response)
          : `as at revision ${request.value.to}: ${changed} resources changed, which is revision ${revision}; frozen until unfreeze`;
      terminal.out(`${text}\n`);
      return 0;
    });
  },
});

interface Request {
  readonly to: number;
  readonly reason: string;
  readonly upstream: string;
  readonly type: string;
}

interface Given {
  readonly to?: string | undefined;
  readonly reason?: string | undefined;
  readonly upstream?: string | undefined;
  readonly type?: string | undefined;
}

function readRequest({ to, reason = '', upstream = '', type }: Given): Result<Request> {
  if (to === undefined) return fail('--to is missing: a revision (see history)');
  const revision = readCount('--to', to, 0);
  if (!revision.ok) return revision;
  if (reason.trim() === '') return fail('--reason is missing: it is logged');
  const known = readType(type);
  return known.ok ? ok({ to: revision.value, reason, upstream, type: known.value }) : known;
}
