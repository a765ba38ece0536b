import {
  type ClientTypeState,
  type ExplainResponse,
  ExplainResponseSchema,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { errorLine } from '../model/error-text.ts';
import { printable } from '../model/printable.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { adminOptions, adminUsage } from './admin-client.ts';
import { defineCommand } from './command.ts';
import { jsonText } from './json-text.ts';
import { readParameters } from './read-parameters.ts';
import { textTable } from './text-table.ts';
import { UsageError } from './usage.ts';
import { readType, shortTypes, withRelay } from './with-relay.ts';

const usage = `Usage: distributary explain --type T --name N [--param KEY=VALUE]... [--client STREAM_ID] [--admin URL]
       [--cert F --key F] [--ca F] [--json]

Shows which variant of a resource a client with these parameters gets, and why each other variant does not match.

  --type T             a type URL, or one of: ${shortTypes}
  --name N             the resource's name
  --param KEY=VALUE    a dynamic parameter; may be repeated
  --client STREAM_ID   a connected client (see the status page): its parameters, and what it was last sent
${adminUsage(21)}
  --json               as JSON
  -h, --help           this text

Exit: 0 if a variant matches; 1 if none does, or if the relay does not answer: stderr says why.`;

const options = {
  type: { type: 'string' },
  name: { type: 'string' },
  param: { type: 'string', multiple: true },
  client: { type: 'string' },
  ...adminOptions,
  json: { type: 'boolean' },
} as const;

/** The command `explain`: its exit code. */
export const explain = defineCommand({
  usage,
  options,
  run: (values, terminal) => {
    const request = readRequest(values);
    if (!request.ok) return new UsageError(request.error, usage);
    return withRelay(values, usage, terminal, async ({ rpc }) => {
      const response = await rpc.explain(request.value);
      const verdict = verdictText(response, request.value);
      const shown =
        values.json === true ? [jsonText(ExplainResponseSchema, response)] : detailTexts(response);
      if (response.matchFound) {
        terminal.out(`${(values.json === true ? shown : [verdict, ...shown]).join('\n\n')}\n`);
        return 0;
      }
      terminal.err(`${verdict}\n`);
      if (shown.length > 0) terminal.out(`${shown.join('\n\n')}\n`);
      return 1;
    });
  },
});

interface Request {
  readonly type: string;
  readonly name: string;
  readonly parameters: Record<string, string>;
  readonly client: string;
}

interface Given {
  readonly type?: string | undefined;
  readonly name?: string | undefined;
  readonly param?: readonly string[] | undefined;
  readonly client?: string | undefined;
}

function readRequest({ type, name, param = [], client = '' }: Given): Result<Request> {
  const known = readType(type);
  if (!known.ok) return known;
  if (type === undefined || type === '') return fail('--type is missing');
  if (name === undefined || name === '') return fail('--name is missing');
  const parameters = readParameters('--param', param);
  return parameters.ok ? ok({ type, name, parameters: parameters.value, client }) : parameters;
}

/** What such a client gets, or why it gets nothing. */
function verdictText(response: ExplainResponse, { type, name }: Request): string {
  return `${type} ${printable(name)} for ${parametersText(response.parameters)}: ${outcome(response)}`;
}

/** What the verdict rests on, by paragraphs. */
function detailTexts(response: ExplainResponse): readonly string[] {
  const { client } = response;
  const parts = [variantsText(response)];
  if (response.ambiguous) {
    parts.push(
      'More than one variant matches: which one is served stays the same, but nothing promises which.',
    );
  }
  if (client !== undefined) {
    parts.push(clientText(client, response));
  }
  return parts.filter((part) => part !== '');
}

/** How the client stands to the type's last response (protocol §9), in words. */
const states: ReadonlyMap<string, string> = new Map([
  ['SYNCED', 'acknowledged'],
  ['NOT_SENT', 'nothing was sent yet'],
  ['STALE', 'not acknowledged yet'],
  ['ERROR', 'rejected'],
]);

function clientText(client: ClientTypeState, { match, matchFound, canary }: ExplainResponse): string {
  const { state, version, lastNack } = client;
  const nack = lastNack === '' ? '' : `, last rejected: ${errorLine(lastNack)}`;
  // Delta control planes need not give a response a version: each resource has its own.
  const what =
    version === ''
      ? 'What this client was last sent'
      : `This client was last sent version ${printable(version)}`;
  const sent = `${what}: ${state} (${states.get(state) ?? state})${nack}`;
  const side = canary ? '\nIt is a canary: it gets changes before the others.' : '';
  return `${sent}\n${heldText(client, matchFound ? match : undefined)}${side}`;
}

/** `match`: the constraints of the variant that it would get now. */
function heldText(
  { held, removalState, lastPoll, state }: ClientTypeState,
  match: string | undefined,
): string {
  if (held === undefined) {
    if (removalState === '' && lastPoll !== '' && state !== 'NOT_SENT') {
      return 'It polls, and what it was answered with is not what there is now: whether it has this resource is not known.';
    }
    if (removalState === '') return 'Of this resource it has nothing.';
    const why = removalState === 'ERROR' ? 'has rejected that' : 'has not acknowledged that yet';
    return `It was told that this resource is gone, and ${why}.`;
  }
  const other = held.constraints === match ? '' : ', which is not what it would get now';
  const version = held.version === '' ? '' : `, version ${printable(held.version)}`;
  const what = `${printable(held.constraints)}${version}${other}`;
  if (held.state === 'ERROR') return `Of this resource it has rejected ${what}: ${errorLine(held.error)}`;
  if (held.state === 'STALE')
    return `Of this resource it was sent ${what}; it has not acknowledged that yet.`;
  return `Of this resource it has ${what}.`;
}

function outcome({ matchFound, match, variants, state }: ExplainResponse): string {
  if (matchFound) return printable(match);
  if (variants.length > 0) return 'no variant matches, so it does not exist for such a client';
  return state === 'absent'
    ? 'it does not exist upstream'
    : 'nothing is known of it: is anybody subscribed to it?';
}

function parametersText(parameters: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(parameters).map(([key, value]) => `${printable(key)}=${printable(value)}`);
  return pairs.length === 0 ? 'no parameters' : pairs.toSorted().join(', ');
}

function variantsText({ variants }: ExplainResponse): string {
  if (variants.length === 0) return '';
  const rows = variants.map((variant) => [
    variant.matches ? 'yes' : 'no',
    variant.constraints,
    variant.reason,
    variant.version,
    variant.bytes,
    variant.since,
    variant.upstream,
  ]);
  return textTable(['MATCHES', 'CONSTRAINTS', 'WHY', 'VERSION', 'BYTES', 'SINCE', 'UPSTREAM'], rows);
}
