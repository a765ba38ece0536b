import { type MessageInitShape } from '@bufbuild/protobuf';
import {
  type DiffRequestSchema,
  type DiffResponse,
  DiffResponseSchema,
  type DiffSideSchema,
} from '../gen/distributary/admin/v1/changes_pb.ts';
import { printable } from '../model/printable.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { printableYaml } from '../observe/yaml-text.ts';
import { type AdminClient, adminOptions, adminUsage } from './admin-client.ts';
import { defineCommand } from './command.ts';
import { jsonText } from './json-text.ts';
import { readParameters } from './read-parameters.ts';
import { textTable } from './text-table.ts';
import { UsageError } from './usage.ts';
import { readCount, readType, shortTypes, withRelay } from './with-relay.ts';

const usage = `Usage: distributary diff (--from REV --to REV | --pending | --client ID --client ID | --param K=V... --against K=V...)
       [--type T] [--name N] [--admin URL] [--cert F --key F] [--ca F] [--json]

Shows which resources differ, and with --name which of their fields, as YAML. Secrets are not shown.

  --from REV --to REV    two revisions (see history)
  --pending              what only canaries have, against what everybody has
  --client ID            twice: what two streams were sent
  --param K=V            what a client with these parameters gets; may be repeated
  --against K=V          and one with these; may be repeated
  --type T               only this type: a type URL, or one of: ${shortTypes}
  --name N               only this resource, field by field
${adminUsage(23)}
  --json                 as JSON
  -h, --help             this text

Exit: 0; 1 if there is no such revision or client, or if the relay does not answer.`;

const options = {
  from: { type: 'string' },
  to: { type: 'string' },
  pending: { type: 'boolean' },
  client: { type: 'string', multiple: true },
  param: { type: 'string', multiple: true },
  against: { type: 'string', multiple: true },
  type: { type: 'string' },
  name: { type: 'string' },
  ...adminOptions,
  json: { type: 'boolean' },
} as const;

/** The command `diff`: its exit code. */
export const diff = defineCommand({
  usage,
  options,
  run: async (values, terminal) => {
    const type = readType(values.type);
    if (!type.ok) return new UsageError(type.error, usage);
    const sides = readSides(values);
    if (!sides.ok) return new UsageError(sides.error, usage);
    return withRelay(values, usage, terminal, async ({ rpc }) => {
      const { from, to } = sides.value;
      const request = { from: { of: from }, to: { of: to }, type: type.value, name: values.name ?? '' };
      const response = await everyDifference(rpc, request);
      terminal.out(`${values.json === true ? jsonText(DiffResponseSchema, response) : diffText(response)}\n`);
      return 0;
    });
  },
});

/** An answer may not hold all of them. */
async function everyDifference(
  rpc: AdminClient['rpc'],
  asked: MessageInitShape<typeof DiffRequestSchema>,
): Promise<DiffResponse> {
  const whole = await rpc.diff(asked);
  for (let offset = whole.nextOffset; offset > 0; ) {
    const page = await rpc.diff({ ...asked, offset });
    whole.differences.push(...page.differences);
    offset = page.nextOffset;
  }
  return { ...whole, nextOffset: 0 };
}

type Side = NonNullable<MessageInitShape<typeof DiffSideSchema>['of']>;

interface Sides {
  readonly from: Side;
  readonly to: Side;
}

interface Given {
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  readonly pending?: boolean | undefined;
  readonly client?: readonly string[] | undefined;
  readonly param?: readonly string[] | undefined;
  readonly against?: readonly string[] | undefined;
}

const accepted =
  'accepted is one of --from REV --to REV, --pending, --client ID --client ID, --param K=V --against K=V';

function readSides(given: Given): Result<Sides> {
  const { from, to, pending, client, param, against } = given;
  const kinds = [
    from !== undefined || to !== undefined,
    pending === true,
    client !== undefined,
    param !== undefined || against !== undefined,
  ];
  const count = kinds.filter(Boolean).length;
  if (count !== 1) return fail(`${count === 0 ? 'nothing to compare' : 'too much to compare'}: ${accepted}`);
  if (pending === true) {
    return ok({ from: { case: 'released', value: true }, to: { case: 'pending', value: true } });
  }
  if (client !== undefined) return clientSides(client);
  return param !== undefined || against !== undefined
    ? parameterSides(param ?? [], against ?? [])
    : revisionSides(from, to);
}

function revisionSides(from: string | undefined, to: string | undefined): Result<Sides> {
  if (from === undefined || to === undefined) {
    return fail(`--from and --to belong together: --${from === undefined ? 'from' : 'to'} is missing`);
  }
  const before = readCount('--from', from, 0);
  if (!before.ok) return before;
  const after = readCount('--to', to, 0);
  if (!after.ok) return after;
  return ok({
    from: { case: 'revision', value: before.value },
    to: { case: 'revision', value: after.value },
  });
}

function clientSides(clients: readonly string[]): Result<Sides> {
  const [from, to] = clients;
  if (from === undefined || to === undefined || clients.length !== 2) {
    return fail(`--client is given ${clients.length === 1 ? 'once' : 'too often'}: two clients are compared`);
  }
  return ok({ from: { case: 'client', value: from }, to: { case: 'client', value: to } });
}

function parameterSides(param: readonly string[], against: readonly string[]): Result<Sides> {
  const from = readParameters('--param', param);
  if (!from.ok) return from;
  const to = readParameters('--against', against);
  if (!to.ok) return to;
  return ok({
    from: { case: 'parameters', value: { values: from.value } },
    to: { case: 'parameters', value: { values: to.value } },
  });
}

function diffText({ differences, total }: DiffResponse): string {
  if (total === 0) return 'nothing differs';
  const rows = differences.map(({ type, name, change }) => [change.toLowerCase(), type, name]);
  const more = total - differences.length;
  const parts = [textTable(['CHANGE', 'TYPE', 'NAME'], rows), more > 0 ? `and ${more} more` : ''];
  for (const { variants } of differences) {
    for (const { constraints, change, yaml } of variants) {
      const of = constraints === '' ? '' : ` of ${printable(constraints)}`;
      parts.push(`# ${change.toLowerCase()}${of}\n${printableYaml(yaml.trimEnd())}`);
    }
  }
  return parts.filter((part) => part !== '').join('\n\n');
}
