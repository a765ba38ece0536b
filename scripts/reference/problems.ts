import { problemKinds } from '../../src/observe/problems.ts';
import { code, heading, table } from './markdown.ts';
import { messages } from './messages.ts';

const about = `What a relay reports as wrong: on the status page, in \`distributary status\` and the RPC \`Status\`, and by
kind in the JSON of \`/ready\`. Each problem has a runbook, and most have an alert. One cause is one problem, however many
clients it concerns.`;

/** docs/reference/problems.md: the kinds of problems, with their alerts and runbooks. */
export function problems(): string {
  const rows = Object.entries(problemKinds).map(([kind, { means, alerts, runbook }]) => [
    code(kind),
    means,
    alerts.map(code).join(', ') || '–',
    `[${runbook}](../runbooks/${runbook}.md)`,
  ]);
  const titles = messages().problems.map(({ of, text }) => [code(text), code(of)]);
  return `${heading('Problems', about)}
\`distributary status --check\` ends with 2 while a problem is critical, with 1 while one is a warning, and with 3 if the
relay cannot be asked. An alert can have another severity, because it takes time into account. An upstream that is away
is critical here at once. For Prometheus it is a warning after 5 minutes, and critical after 15.

Each problem says since when (\`since\`). With \`missing\` that is when the relay knew that there is nothing for the first
of these clients. A certificate that expires soon is a problem from 7 days before its end, or from a
quarter of its lifetime before it, if that is later. Where nothing else tells, it is when the relay has first seen the problem: it looks every 5 seconds, and
what it sees first has been there since its start.

${table(['kind', 'meaning', 'alerts', 'runbook'], rows)}

## Titles

Collected from the code. What is filled in is in braces.

${table(['title', 'kind'], titles)}
`;
}
