import { rejections } from '../../src/observe/rejections.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { refusal } from '../../src/wire/http-answer.ts';
import { code, heading, table, withKeys } from './markdown.ts';
import { type Message, messages } from './messages.ts';

const about = `How the relay refuses, where it is counted, and which messages it writes. The message of each error says what was
wrong, where, and what is expected. The titles of problems are in [Problems](problems.md).`;

const rowsOf = (all: readonly Message[]): readonly (readonly string[])[] =>
  all.map(({ of, text }) => [code(text), code(of)]);

const list = (texts: readonly string[]): string => texts.map((text) => `- ${code(text)}`).join('\n');

/** docs/reference/errors.md: reasons of refusals, status codes, exit codes and messages. */
export function errors(): string {
  const { refusals, log, configuration, commands } = messages();
  const reasons = [...rejections].map(([reason, { code: status, means }]) => [
    code(reason),
    status === undefined ? '–' : code(status),
    withKeys(means),
  ]);
  const polls = Object.entries(Code)
    .map(([name, status]) => [code(name), refusal({ code: status, message: '' }).status] as const)
    .filter(([, status]) => status !== 500);
  return `${heading('Errors', about)}
## To clients

\`reason\` is the label of \`distributary_downstream_rejected_total\`.

${table(['reason', 'gRPC status', 'meaning'], reasons)}

A gRPC call of a service that the relay does not have ends with \`UNIMPLEMENTED\`; xDS v2 is such a service.

A poll over REST gets an HTTP status in the place of the gRPC status, and the body \`{"code", "message"}\`:

${table(
  ['gRPC status', 'HTTP status'],
  polls.map(([name, status]) => [name, String(status)]),
)}

Also 401 if client certificates are verified and none was shown, and 413 for a body larger than
\`limits.max_poll_bytes\`.

A name that does not exist is no error: SotW leaves it out, delta removes it. A name that no upstream claims has an entry in
\`resource_errors\` with \`NOT_FOUND\`.

## Of the admin listener

| status | meaning |
|-|-|
| 400, \`invalid_argument\` | a field is missing, or cannot be understood |
| 403, \`permission_denied\` | the call changes something, and \`admin.read_only\` or the listener's other rules refuse it ([who may ask](../operations.md#who-may-ask-the-admin-listener)) |
| 421 | the Host is neither loopback, nor the bound address, nor in \`admin.hosts\` |
| 503 of \`/ready\` | the relay is not ready; the body says why |

## Exit codes

| code | meaning |
|-|-|
| 0 | done; \`run\`: drained after SIGTERM or SIGINT |
| 1 | anything else: the relay does not answer, there is no such thing, a timeout; \`run\`: a port that is taken |
| 2 | the command line or the configuration cannot be used; stderr has each problem with its line |

\`status --check\` ends as monitoring expects it: 0 OK, 1 warning, 2 critical, 3 unknown (the relay cannot be asked).

## Messages

Collected from the code. What is filled in is in braces.

### To clients and callers of the admin RPC

${table(['message', 'gRPC status'], rowsOf(refusals))}

### In the log

Each line has more fields: which upstream, listener, client or type it is about, and the error.

${table(['message', 'level'], rowsOf(log))}

### About the configuration

\`validate\` and \`run\` print them after FILE:LINE:COLUMN and the path of the key.

${list(configuration)}

### About the command line

${list(commands)}
`;
}
