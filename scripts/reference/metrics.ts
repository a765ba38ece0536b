import { Metrics } from '../../src/observe/metrics.ts';
import { code, heading, table } from './markdown.ts';

const about = `\`GET /metrics\` on the admin listener, and on the \`metrics\` listener, in the text format of Prometheus.
The label \`type\` is a short name such as \`cds\`. Types that are not known are named by their URL: 32 of them in
each process, of which at most 8 are types of which no upstream has a resource. The rest are \`other\`, and in
\`distributary_acknowledged_seconds\` all of them. Labels never hold names of resources or nodes. [Operations](../operations.md#metrics-and-alerts) says what the
metrics tell you, and which of them have alerts.`;

/** docs/reference/metrics.md: every metric of a registry that has them all. */
export function metrics(): string {
  const all = new Metrics(undefined, { process: true });
  all.relay('', () => ({}));
  all.persistence(() => ({}));
  const found = all.describe().toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const rows = (own: boolean): string =>
    table(
      ['metric', 'type', 'labels', 'meaning'],
      found
        .filter(({ name }) => name.startsWith('distributary_') === own)
        .map(({ name, type, labelNames: labels, help }) => [
          code(name),
          type,
          labels.map(code).join(' '),
          help,
        ]),
    );
  return `${heading('Metrics', about)}
## The relay

The gauges of persistence are there with \`cache.persistence\` only. With \`workers\` there is also the histogram
\`distributary_worker_feed_seconds\`: from the receipt of an update to its arrival at a worker.

${rows(true)}

## The process

Of prom-client. With \`workers\` they carry the label \`worker\`.

${rows(false)}
`;
}
