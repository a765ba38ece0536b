import { create } from '@bufbuild/protobuf';
import {
  type ListResourcesResponse,
  ListResourcesResponseSchema,
  type ResourceSummary,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { type AdminClient, adminOptions, adminUsage } from './admin-client.ts';
import { defineCommand } from './command.ts';
import { jsonText } from './json-text.ts';
import { textTable } from './text-table.ts';
import { UsageError } from './usage.ts';
import { watchUsage } from './watch.ts';
import { readCount, readType, shortTypes, showRelay } from './with-relay.ts';

/** Without --limit. */
const usualLimit = 1000;
/** The most that one answer has. */
const longestPage = 1000;

const usage = `Usage: distributary resources [--type T] [--name N] [--limit N] [--watch] [--admin URL] [--cert F --key F]
       [--ca F] [--json]

Lists the resources that are cached, one line for each variant. What is in them: get.

  --type T      only this type: a type URL, or one of: ${shortTypes}
  --name N      only this resource; with a * at its end, those that begin so
  --limit N     at most so many resources; default ${usualLimit}
${watchUsage(14)}
${adminUsage(14)}
  --json        as JSON; with --watch one line each time
  -h, --help    this text

Exit: 0, also if there is none; 1 if the relay does not answer.`;

/** The command `resources`: its exit code. */
export const resources = defineCommand({
  usage,
  options: {
    type: { type: 'string' },
    name: { type: 'string', default: '*' },
    limit: { type: 'string' },
    watch: { type: 'boolean' },
    ...adminOptions,
    json: { type: 'boolean' },
  },
  run: (values, terminal) => {
    const type = readType(values.type);
    if (!type.ok) return new UsageError(type.error, usage);
    const limit = readCount('--limit', values.limit, usualLimit);
    if (!limit.ok) return new UsageError(limit.error, usage);
    const { name } = values;
    if (name.slice(0, -1).includes('*')) {
      return new UsageError(`--name ${JSON.stringify(name)}: only its last character may be *`, usage);
    }
    return showRelay(values, usage, terminal, async ({ rpc }) => {
      const response = await listed(rpc, type.value, name, limit.value);
      if (values.json !== true) return resourcesText(response);
      return jsonText(ListResourcesResponseSchema, response, values.watch === true ? 0 : 2);
    });
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

function resourcesText({ resources: found, nextPageToken }: ListResourcesResponse): string {
  if (found.length === 0) return 'nothing like this is cached';
  const rows = found.flatMap(({ type, name, variants }) =>
    variants.map(({ constraints, version, bytes, since, upstream }) => [
      type,
      name,
      constraints,
      version,
      bytes,
      since,
      upstream,
    ]),
  );
  const heads = ['TYPE', 'NAME', 'CONSTRAINTS', 'VERSION', 'BYTES', 'SINCE', 'UPSTREAM'];
  const more = nextPageToken === '' ? '' : '; there are more (--limit)';
  return `${textTable(heads, rows)}\n\n${found.length} resources in ${rows.length} variants${more}`;
}
