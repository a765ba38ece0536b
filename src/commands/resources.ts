import { create } from '@bufbuild/protobuf';
import {
  type GetResourceResponse,
  type ListResourcesResponse,
  ListResourcesResponseSchema,
  type ResourceSummary,
  type ResourceVariant,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { counted, errorText, printable } from '../model/text.ts';
import { formatBytes } from '../observe/format.ts';
import { textTable, type View } from '../observe/text-table.ts';
import { yamlText } from '../observe/yaml-text.ts';
import { count, required, text, type, UsageError } from './command.ts';
import { type AdminClient, answer, everyPart, relayCommand } from './relay-command.ts';
import { variantColumns, versionText } from './terminal.ts';

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
  const shown = variants.map(
    ({ constraints, content, version, bytes, since, upstream, state, error, omitted, json }) => ({
      constraints,
      content,
      version,
      bytes,
      since,
      upstream,
      state,
      error,
      omitted,
      resource: bodyOf(json),
    }),
  );
  return { variants: shown };
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
