import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { createFileRegistry, type DescMessage, type DescMethod, fromBinary } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema, MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt';
import { Comments } from './comments.ts';
import { fieldType } from './field-type.ts';
import { code, heading, table } from './markdown.ts';

const about = `\`POST /distributary.admin.v1.AdminService/METHOD\` on the admin listener, by the
[Connect protocol](https://connectrpc.com/docs/protocol), with JSON or binary bodies:

\`\`\`sh
curl -s -H 'content-type: application/json' -d '{"type":"cds"}' \\
  http://127.0.0.1:19000/distributary.admin.v1.AdminService/ListResources
\`\`\`

In JSON a field of an answer is in snake_case (\`uptime_seconds\`); a request takes camelCase too. [The source](../../proto/distributary/admin/v1/admin.proto) is in the
repository. Methods that change something are refused with \`permission_denied\` where \`admin.read_only\` is set.

An answer has at most 8 MiB. A list with pages says where to go on: \`next_offset\`, \`next_page_token\` or \`next_before\`.
Any other list ends there, and \`truncated\` is true. CSDS past 8 MiB is refused with \`resource_exhausted\`, and the message
says what makes it smaller.`;

const root = join(import.meta.dirname, '../..');

/** docs/reference/admin-rpc.md: methods and messages, with the comments of the sources. */
export function adminRpc(): string {
  const image = execFileSync(
    join(root, 'node_modules/.bin/buf'),
    ['build', 'proto', '--as-file-descriptor-set', '--output', '-#format=binpb'],
    { cwd: root, maxBuffer: 1 << 26 },
  );
  const set = fromBinary(FileDescriptorSetSchema, image);
  const comments = new Comments(set);
  const registry = createFileRegistry(set);
  const service = registry.getService('distributary.admin.v1.AdminService');
  if (service === undefined) throw new Error('proto/ has no AdminService');
  const methods = service.methods.map((method) => [
    code(method.name),
    method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS ? 'reads' : '**changes**',
    comments.of(method),
  ]);
  const parts = service.methods.map((method) => methodSection(method, comments));
  const shared = messagesOf(service.methods).map((message) => messageSection(message, comments));
  return `${heading('Admin RPC', about)}
${table(['method', '', 'what it is for'], methods)}

${parts.join('\n\n')}

## Messages

${shared.join('\n\n')}
`;
}

function methodSection(method: DescMethod, comments: Comments): string {
  const stream = method.methodKind === 'server_streaming' ? 'stream of ' : '';
  return `## ${method.name}

${comments.of(method)}

Request:

${fields(method.input, comments)}

Response${stream === '' ? '' : ' (a stream of these)'}:

${fields(method.output, comments)}`;
}

/** The messages in fields, without those of the methods themselves. */
function messagesOf(methods: readonly DescMethod[]): readonly DescMessage[] {
  const own = new Set(methods.flatMap(({ input, output }) => [input, output]));
  const found = new Set<DescMessage>();
  const visit = (message: DescMessage): void => {
    for (const { message: inner } of message.fields) {
      if (inner === undefined || found.has(inner) || own.has(inner)) continue;
      if (!inner.typeName.startsWith('distributary.')) continue;
      found.add(inner);
      visit(inner);
    }
  };
  for (const message of own) visit(message);
  return [...found].toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function messageSection(message: DescMessage, comments: Comments): string {
  const text = comments.of(message);
  return `### ${message.name}\n\n${text === '' ? '' : `${text}\n\n`}${fields(message, comments)}`;
}

function fields(message: DescMessage, comments: Comments): string {
  if (message.fields.length === 0) return 'No fields.';
  return table(
    ['field', 'type', 'meaning'],
    message.fields.map((field) => [code(field.name), fieldType(field), comments.of(field)]),
  );
}
