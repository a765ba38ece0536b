import { create } from '@bufbuild/protobuf';
import {
  type ClientTypeState,
  type ExplainRequest,
  type ExplainResponse,
  type GetResourceResponse,
  type ListResourcesResponse,
  ListResourcesResponseSchema,
  type ResourceSummary,
  type ResourceVariant,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import type { ExplainClientResponse } from '../gen/distributary/admin/v1/fleet_pb.ts';
import { counted, errorLine, errorText, printable } from '../model/text.ts';
import { WILDCARD } from '../model/transaction.ts';
import { isGlob } from '../model/xdstp.ts';
import { formatBytes } from '../observe/format.ts';
import { command, notAllowed, othersText, parametersLabel } from '../observe/problems.ts';
import { stateCell, textTable, type View } from '../observe/text-table.ts';
import { yamlText } from '../observe/yaml-text.ts';
import { count, parameters, required, text, type, UsageError } from './command.ts';
import { type AdminClient, type Answer, answer, everyPart, relayCommand } from './relay-command.ts';
import { staleLines, variantColumns, versionText } from './terminal.ts';

/** Without --limit. */
const usualLimit = 1000;
/** The most that one answer has. */
const longestPage = 1000;

export const resources = relayCommand({
  name: 'resources',
  does: 'lists cached resources',
  about: 'Lists cached resources, one line for each variant. get shows their content.',
  flags: {
    type: type('only this type'),
    name: text('N', 'only this resource; NAME* matches by prefix'),
    limit: count('N', `list at most N resources; default ${usualLimit}`, usualLimit),
  },
  watch: true,
  exit: '0, even if there is none; 1 if the relay does not answer.',
  ask: ({ type, name, limit }) => {
    if (name.slice(0, -1).includes('*')) {
      return new UsageError(`--name ${JSON.stringify(name)}: only its last character may be *`);
    }
    return async ({ rpc }) => {
      const response = await listed(rpc, type, name === '' ? '*' : name, limit);
      return answer(response, (view) => resourcesText(response, view));
    };
  },
});

/** Page by page. A page token in the answer: there are more. */
async function listed(
  rpc: AdminClient['rpc'],
  type: string,
  name: string,
  limit: number,
): Promise<ListResourcesResponse> {
  const namePrefix = name.replace(/\*$/, '');
  const isMeant = name.endsWith('*') ? () => true : (found: ResourceSummary) => found.name === name;
  const found: ResourceSummary[] = [];
  let pageToken = '';
  do {
    const pageSize = Math.min(longestPage, limit - found.length);
    const page = await rpc.listResources({ type, namePrefix, pageSize, pageToken });
    found.push(...page.resources.filter(isMeant));
    pageToken = page.nextPageToken;
  } while (pageToken !== '' && found.length < limit);
  return create(ListResourcesResponseSchema, { resources: found, nextPageToken: pageToken });
}

function resourcesText({ resources: found, nextPageToken }: ListResourcesResponse, view: View): string {
  if (found.length === 0) return 'no cached resource matches';
  const rows = found.flatMap(({ type, name, variants }) =>
    variants.map((variant) => Object.assign(variant, { type, name })),
  );
  const more = nextPageToken === '' ? '' : '; there are more: raise --limit';
  return `${textTable(rows, ['type', 'name', ...variantColumns], view)}\n\n${counted(found.length, 'resource')} in ${counted(rows.length, 'variant')}${more}`;
}

export const get = relayCommand({
  name: 'get',
  does: 'shows a resource as YAML, as cached or as sent to a client',
  about: `Shows a resource as YAML: each variant that is cached, or what a client was last sent. Secrets, and fields that Envoy's API
marks as sensitive, are left out.`,
  flags: {
    type: required(type()),
    name: required(text('N', "the resource's name")),
    client: text('ID', 'what this client was last sent (see clients)'),
  },
  exit: '0; 1 if there is no such resource or client, or if the relay does not answer: stderr says why.',
  ask:
    (asked) =>
    async ({ rpc }) => {
      const response = await everyPart('variants', 'nextOffset', (offset) =>
        rpc.getResource({ ...asked, offset }),
      );
      return { json: () => jsonOf(response), text: () => yamlOf(response, asked.client) };
    },
});

/** The RPC's answer, with the resources themselves in the place of their JSON. */
function jsonOf({ variants }: GetResourceResponse): unknown {
  return {
    variants: variants.map(({ $typeName: _name, $unknown: _unknown, json, ...rest }) => ({
      ...rest,
      resource: bodyOf(json),
    })),
  };
}

/** One YAML document for each variant. What is no part of the resource is a comment. */
function yamlOf({ variants }: GetResourceResponse, client: string): string {
  return variants
    .map((variant) => {
      const { json, omitted } = variant;
      const body = json === '' ? `# ${printable(omitted)}` : yamlText(bodyOf(json)).trimEnd();
      return `${commentOf(variant, client)}\n${body}`;
    })
    .join('\n---\n');
}

function commentOf(variant: ResourceVariant, client: string): string {
  const { constraints, bytes, since, upstream, state, error } = variant;
  const of = [
    constraints + versionText(variant),
    formatBytes(bytes),
    `cached since ${since}`,
    ...(upstream === '' ? [] : [`from ${upstream}`]),
    ...(client === ''
      ? []
      : [`sent to client ${client}: ${state}${error === '' ? '' : ` (${errorText(error, 1000)})`}`]),
  ];
  return `# ${printable(of.join(', '))}`;
}

function bodyOf(json: string): unknown {
  const body: unknown = json === '' ? null : JSON.parse(json);
  return body;
}

/** Names of one client, on one screen. */
const usualNames = 20;

const flags = {
  type: type(),
  name: text('N', "the resource's name; not a wildcard: resources lists what there is"),
};

export const explain = relayCommand({
  name: 'explain',
  does: 'shows which variant of a resource a client gets, and why',
  about: `Shows which variant of a resource a client with these parameters gets, and why each other variant does not match.

With --client and without --type or --name, it shows all that this client subscribes to: first what it has rejected, then what
it lacks and why, then what it has not acknowledged or was not sent.`,
  usage:
    '(--type T --name N [--param KEY=VALUE]... [--client ID] | --client ID [--type T] [--name N] [--limit N])',
  flags: {
    ...flags,
    param: parameters('a dynamic parameter; may be repeated'),
    client: text('ID', 'a connected client (see clients): its parameters, and what it was last sent'),
    limit: count('N', `of one client list at most N names, at most 500; default ${usualNames}`, usualNames),
  },
  exit: '0 if a variant matches, of a client for all that it subscribes to; 1 if none does, or if the relay does not answer: stderr says why.',
  ask: ({ param, limit, ...asked }) => {
    const isOne = asked.type !== '' && asked.name !== '';
    if (isOne)
      return async ({ rpc }) => {
        const response = await rpc.explain({ ...asked, parameters: param });
        const said = verdictText(response, asked);
        return judged(response, said, response.matchFound, (view) => detailTexts(response, view));
      };
    if (asked.client === '') {
      const lacking = asked.type === '' ? 'type' : 'name';
      const { value, says } = flags[lacking];
      return new UsageError(`--${lacking} ${value} is missing: ${says} (or only --client ID)`);
    }
    if (Object.keys(param).length > 0)
      return new UsageError('--param is for one resource: give --type and --name, too');
    return async ({ rpc }) => {
      const response = await rpc.explainClient({ ...asked, limit });
      const { states, total } = response;
      const lacks = (states['MISSING'] ?? 0) + (states['NOT_SENT'] ?? 0) > 0 || total === 0;
      const said = clientVerdict(response, asked);
      return judged(response, said, !lacks, (view) => holdingTexts(response, view));
    };
  },
});

/** `said`: what it comes to; where that is not `good`, it is a problem. */
function judged(
  response: ExplainResponse | ExplainClientResponse,
  said: string,
  good: boolean,
  details: (view: View) => readonly string[],
): Answer {
  const verdict = [said, ...staleLines(response)].join('\n');
  const text = (view: View): string => [...(good ? [verdict] : []), ...details(view)].join('\n\n');
  return answer(response, text, good ? undefined : () => verdict);
}

/** `client w1-17 (node envoy-7, env=prd): 1 rejected, 2 missing, 30 acknowledged`. */
function clientVerdict(
  { client: id, nodeId, parameters: own, states, total }: ExplainClientResponse,
  asked: Resource,
): string {
  const who = printable(`client ${id} (node ${nodeId}, ${parametersText(own)})`);
  if (total === 0) {
    const what = `${asked.type} ${asked.name}`.trim();
    const nothing = `has no${what === '' ? 'thing' : ` ${printable(what)}`}`;
    return `${who} ${nothing}: it does not subscribe to it, or nobody has any`;
  }
  const counts = heldStates.flatMap(([state, words]) =>
    states[state] === undefined ? [] : `${states[state].toLocaleString('en')} ${words}`,
  );
  return `${who}: ${counts.join(', ')}`;
}

/** The worst first. */
const heldStates = [
  ['ERROR', 'rejected'],
  ['MISSING', 'missing'],
  ['STALE', 'not acknowledged yet'],
  ['NOT_SENT', 'not sent yet'],
  ['SYNCED', 'acknowledged'],
] as const;

/** The names, by paragraphs. */
function holdingTexts({ client: id, holdings, total }: ExplainClientResponse, view: View): readonly string[] {
  if (holdings.length === 0) return [];
  const rest = total - holdings.length;
  const worst = holdings.find(({ state, name }) => state !== 'SYNCED' && name !== WILDCARD && !isGlob(name));
  const explain =
    worst === undefined
      ? ''
      : command('distributary explain', '--client', id, '--type', worst.type, '--name', worst.name);
  return [
    textTable(
      holdings,
      [
        'type',
        'name',
        ['STATE', ({ state }) => stateCell(state)],
        ['VARIANT', 'constraints'],
        ['UPSTREAM VERSION', 'version', 'wide'],
        ['SINCE', 'since', 'wide'],
        ['WHY', ({ error, why }) => error || why],
      ],
      view,
    ),
    ...(rest === 0 ? [] : [`and ${counted(rest, 'more name')}: --type, --name or --limit lists them`]),
    // A name that cannot be typed has no command.
    ...(explain === '' ? [] : [`$ ${explain}`]),
  ];
}

type Resource = Pick<ExplainRequest, 'type' | 'name'>;

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
const states: ReadonlyMap<string, string> = new Map<string, string>([
  ...heldStates,
  ['NOT_SENT', 'nothing sent yet'],
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
  const cohort = canary ? '\nIt is a canary: it gets changes before the others.' : '';
  return `${sent}\n${heldText(client, matchFound ? match : undefined)}${cohort}`;
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
  if (state === 'denied') return notAllowed;
  if (variants.length > 0)
    return `no variant matches, so it does not exist for such a client${othersText(otherClasses)}`;
  return state === 'absent'
    ? 'it does not exist upstream'
    : 'nothing is known about it: does any client subscribe to it?';
}

const parametersText = (parameters: Readonly<Record<string, string>>): string =>
  printable(parametersLabel(parameters, 'no parameters'));

function variantsText({ variants }: ExplainResponse, view: View): string {
  if (variants.length === 0) return '';
  return textTable(
    variants,
    [
      ['MATCHES', ({ matches }) => (matches ? 'yes' : 'no')],
      ['NAME', 'name', 'rare'],
      ...variantColumns,
      ['WHY', 'reason'],
    ],
    view,
  );
}
