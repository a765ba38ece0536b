import {
  type ClientTypeState,
  type ExplainResponse,
  ExplainResponseSchema,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { errorLine, printable } from '../model/text.ts';
import { WILDCARD } from '../model/transaction.ts';
import { isGlob } from '../model/xdstp.ts';
import { othersText } from '../observe/missing-text.ts';
import { parameters, required, text, type } from './command.ts';
import { answer, relayCommand } from './relay-command.ts';
import { staleLines, textTable, type View, versionText, wide } from './terminal.ts';

export const explain = relayCommand({
  name: 'explain',
  does: 'shows which variant of a resource a client gets, and why',
  about: `Shows which variant of a resource a client with these parameters gets, and why each other variant does not match.`,
  flags: {
    type: required(type()),
    name: required(text('N', "the resource's name; not a wildcard: resources lists what there is")),
    param: parameters('a dynamic parameter; may be repeated'),
    client: text('ID', 'a connected client (see clients): its parameters, and what it was last sent'),
  },
  exit: '0 if a variant matches; 1 if none does, or if the relay does not answer: stderr says why.',
  ask:
    ({ param, ...asked }) =>
    async ({ rpc }) => {
      const response = await rpc.explain({ ...asked, parameters: param });
      const verdict = [verdictText(response, asked), ...staleLines(response)].join('\n');
      const details = (view: View) => detailTexts(response, view);
      const found = response.matchFound;
      const text = (view: View): string => (found ? [verdict, ...details(view)] : details(view)).join('\n\n');
      return answer(ExplainResponseSchema, response, text, found ? undefined : () => verdict);
    },
});

interface Resource {
  readonly type: string;
  readonly name: string;
}

/** What such a client gets, or why it gets nothing. */
function verdictText(response: ExplainResponse, { type, name }: Resource): string {
  const why = several(response, { type, name }) ?? outcome(response);
  return `${type} ${printable(name)} for ${parametersText(response.parameters)}: ${why}`;
}

/** What the verdict rests on, by paragraphs. */
function detailTexts(response: ExplainResponse, view: View): readonly string[] {
  const { client } = response;
  const parts = [variantsText(response, view)];
  if (response.ambiguous) {
    parts.push(
      'More than one variant matches. The relay always serves the same one, but which one is not defined.',
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
  ['NOT_SENT', 'nothing sent yet'],
  ['STALE', 'not acknowledged yet'],
  ['ERROR', 'rejected'],
  ['MISSING', 'something it subscribes to does not exist for it'],
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
  { held, removalState, lastPoll, state, missing, lastNack }: ClientTypeState,
  match: string | undefined,
): string {
  if (held === undefined) {
    if (removalState === '' && lastPoll !== '' && state !== 'NOT_SENT') {
      return 'It polls, and its last response is out of date. Whether it has this resource is not known.';
    }
    if (missing) return 'It subscribes to this resource, which does not exist for it: MISSING.';
    if (removalState === '') return 'It does not have this resource.';
    const why = removalState === 'ERROR' ? 'has rejected that' : 'has not acknowledged that yet';
    return `It was told that this resource was removed, and ${why}.`;
  }
  const other = held.constraints === match ? '' : ', which is not the one it would get now';
  const version = versionText(held);
  const what = `${printable(held.constraints)}${version}${other}`;
  if (held.state === 'ERROR') {
    const why = held.error === lastNack ? '.' : `: ${errorLine(held.error)}`;
    return `It has rejected the variant ${what}${why}`;
  }
  if (held.state === 'STALE') return `It was sent the variant ${what}, and has not acknowledged it yet.`;
  return `It has the variant ${what}.`;
}

/** Of a wildcard or a glob: what it selects, and which command lists that. Undefined: it is a name. */
function several({ variants }: ExplainResponse, { type, name }: Resource): string | undefined {
  const isWildcard = name === WILDCARD;
  if (variants.length > 0 || !(isWildcard || isGlob(name))) return undefined;
  const selected = isWildcard ? `every ${type} that exists for a client` : 'what is one level below';
  const only = isWildcard ? '' : ` --name '${printable(name.slice(0, name.indexOf('*') + 1))}'`;
  return `it selects ${selected}, and explain takes one name: "distributary resources --type ${type}${only}" lists them`;
}

function outcome({ matchFound, match, variants, state, otherClasses }: ExplainResponse): string {
  if (matchFound) return printable(match);
  if (variants.length > 0)
    return `no variant matches, so it does not exist for such a client${othersText(otherClasses)}`;
  return state === 'absent'
    ? 'it does not exist upstream'
    : 'nothing is known about it: does any client subscribe to it?';
}

function parametersText(parameters: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(parameters).map(([key, value]) => `${printable(key)}=${printable(value)}`);
  return pairs.length === 0 ? 'no parameters' : pairs.toSorted().join(', ');
}

function variantsText({ variants }: ExplainResponse, view: View): string {
  if (variants.length === 0) return '';
  const rows = variants.map((variant) => [
    variant.matches ? 'yes' : 'no',
    variant.constraints,
    variant.content,
    variant.version,
    variant.bytes,
    variant.since,
    variant.upstream,
    variant.reason,
  ]);
  const about = [wide('BYTES'), wide('SINCE'), wide('UPSTREAM')];
  return textTable(['MATCHES', 'CONSTRAINTS', 'VERSION', 'UPSTREAM VERSION', ...about, 'WHY'], rows, view);
}
