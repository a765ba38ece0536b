import type { GetResourceResponse, ResourceVariant } from '../gen/distributary/admin/v1/admin_pb.ts';
import { errorText } from '../model/error-text.ts';
import { printable, printableJson } from '../model/printable.ts';
import { formatBytes } from '../observe/format.ts';
import { yamlText } from '../observe/yaml-text.ts';
import { type AdminClient, adminOptions, adminUsage } from './admin-client.ts';
import { defineCommand } from './command.ts';
import { UsageError } from './usage.ts';
import { readType, shortTypes, showRelay } from './with-relay.ts';

const usage = `Usage: distributary get --type T --name N [--client STREAM_ID] [--admin URL] [--cert F --key F] [--ca F] [--json]

Shows a resource as YAML: each variant that is cached, or what a client was last sent. Secrets, and fields that Envoy's API
marks as sensitive, are left out.

  --type T             a type URL, or one of: ${shortTypes}
  --name N             the resource's name
  --client STREAM_ID   what this client was last sent (see clients)
${adminUsage(21)}
  --json               as JSON
  -h, --help           this text

Exit: 0; 1 if there is no such resource or client, or if the relay does not answer: stderr says why.`;

/** The command `get`: its exit code. */
export const get = defineCommand({
  usage,
  options: {
    type: { type: 'string' },
    name: { type: 'string' },
    client: { type: 'string', default: '' },
    ...adminOptions,
    json: { type: 'boolean' },
  },
  run: (values, terminal) => {
    const type = readType(values.type);
    if (!type.ok) return new UsageError(type.error, usage);
    const { name, client, json } = values;
    if (type.value === '') return new UsageError('--type is missing', usage);
    if (name === undefined || name === '') return new UsageError('--name is missing', usage);
    return showRelay(values, usage, terminal, async ({ rpc }) => {
      const response = await everyVariant(rpc, { type: type.value, name, client });
      return json === true ? jsonOf(response) : yamlOf(response, client);
    });
  },
});

/** An answer may not hold all of them. */
async function everyVariant(
  rpc: AdminClient['rpc'],
  asked: { readonly type: string; readonly name: string; readonly client: string },
): Promise<GetResourceResponse> {
  const whole = await rpc.getResource(asked);
  for (let offset = whole.nextOffset; offset > 0; ) {
    const page = await rpc.getResource({ ...asked, offset });
    whole.variants.push(...page.variants);
    offset = page.nextOffset;
  }
  return whole;
}

/** The RPC's answer, with the resources themselves in the place of their JSON. */
function jsonOf({ variants }: GetResourceResponse): string {
  const shown = variants.map(
    ({ constraints, version, bytes, since, upstream, state, error, omitted, json }) => ({
      ...{ constraints, version, bytes, since, upstream, state, error, omitted },
      resource: bodyOf(json),
    }),
  );
  return printableJson(JSON.stringify({ variants: shown }, null, 2));
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
  const { constraints, version, bytes, since, upstream, state, error } = variant;
  const of = [
    constraints,
    ...(version === '' ? [] : [`version ${version}`]),
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
