import type { GetResourceResponse, ResourceVariant } from '../gen/distributary/admin/v1/admin_pb.ts';
import { errorText, printable } from '../model/text.ts';
import { formatBytes } from '../observe/format.ts';
import { yamlText } from '../observe/yaml-text.ts';
import { required, text, type } from './command.ts';
import { everyPart, relayCommand } from './relay-command.ts';
import { versionText } from './terminal.ts';

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
      ...{ constraints, content, version, bytes, since, upstream, state, error, omitted },
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
