import { create } from '@bufbuild/protobuf';
import {
  type ListResourcesResponse,
  ListResourcesResponseSchema,
  type ResourceSummary,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { counted } from '../model/text.ts';
import { count, text, type, UsageError } from './command.ts';
import { type AdminClient, answer, relayCommand } from './relay-command.ts';
import { textTable, type View, variantColumns } from './terminal.ts';

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
      return answer(ListResourcesResponseSchema, response, (view) => resourcesText(response, view));
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
