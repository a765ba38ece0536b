import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { Metrics } from '../../src/observe/metrics.ts';
import { root, temporaryDirectory } from '../e2e/support/paths.ts';
import { prometheusBinaries, promtool } from '../e2e/support/prometheus.ts';
import { need } from '../e2e/support/skip.ts';
import { type AlertCase, alertCases, alertDescriptions } from './alert-cases.ts';

const directory = join(root, 'deploy/observability');
const [alertsFile, recordingFile] = [join(directory, 'alerts.yaml'), join(directory, 'recording-rules.yaml')];
const operations = join(root, 'docs/operations.md');

const rule = z.strictObject({
  alert: z.string(),
  expr: z.string(),
  for: z.string().optional(),
  labels: z.strictObject({ severity: z.enum(['warning', 'critical']) }),
  annotations: z.strictObject({ summary: z.string(), description: z.string(), runbook_url: z.string() }),
});
type Rule = z.infer<typeof rule>;

const alerts = z
  .strictObject({ groups: z.array(z.strictObject({ name: z.string(), rules: z.array(rule) })) })
  .parse(parse(readFileSync(alertsFile, 'utf8')))
  .groups.flatMap(({ rules }) => rules);

const minutes = (duration: string): number =>
  [...duration.matchAll(/(\d+)([mhd])/g)].reduce(
    (sum, [, count, unit]) => sum + Number(count) * (unit === 'd' ? 1440 : unit === 'h' ? 60 : 1),
    0,
  );

/** What promtool runs: the alert fires at that time, not before its `for`, and is quiet with the other series. */
function unitTest(known: Rule, one: AlertCase): readonly object[] {
  const { at, interval, fires, begins, quiet, labels } = one;
  const description = one.description ?? alertDescriptions[known.alert];
  const annotations = { ...known.annotations, description };
  const expected = { exp_labels: { ...known.labels, ...labels }, exp_annotations: annotations };
  const look = (time: string, firing: boolean): object => ({
    eval_time: time,
    alertname: known.alert,
    exp_alerts: firing ? [expected] : [],
  });
  // The rules are evaluated once for all looks at the same series.
  const test = (name: string, series: AlertCase['fires'], ...looks: readonly object[]): object => ({
    name: `${known.alert} ${name}`,
    interval: interval ?? '1m',
    input_series: Object.entries(series).map(([one, values]) => ({ series: one, values })),
    alert_rule_test: looks,
  });
  const waits = known.for === undefined ? [] : [look(`${minutes(known.for) - 1}m`, false)];
  const first = begins === undefined ? [] : [test('fires at the first increment', begins, look(at, true))];
  return [
    test('waits, and fires', fires, ...waits, look(at, true)),
    ...first,
    test('is quiet', quiet, look(at, false)),
  ];
}

function fail(name: string): never {
  throw new Error(`no alert ${name}`);
}

/** The alerts as docs/operations.md shows them. */
function table(): string {
  const code = (text: string): string => `\`${text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ').trim()}\``;
  const rows = alerts.map(
    ({ alert, expr, for: wait, labels, annotations: { summary, runbook_url: page } }) => {
      const lasting = wait === undefined ? '' : ` for ${wait}`;
      return `| [${alert}](${page.replace('docs/', '')}) | ${labels.severity} | ${code(expr)}${lasting} | ${summary} |`;
    },
  );
  return ['| alert and runbook | severity | expression | what it means |', '|-|-|-|-|', ...rows].join('\n');
}

describe('alerts', function () {
  this.timeout(300_000);

  it('fire when they must, not before, and not otherwise', async function () {
    const binaries = await need(this, prometheusBinaries());
    expect([...new Set(alertCases.map(({ alert }) => alert))]).to.have.members(
      alerts.map(({ alert }) => alert),
    );
    using files = temporaryDirectory();
    // A file of tests has one interval; and each of its tests evaluates all rules that it names.
    const byAlert = Map.groupBy(alertCases, ({ alert, interval = '1m' }) => `${alert}-${interval}`);
    const paths = Array.from(byAlert, ([name, cases]) => {
      const [{ alert, interval = '1m' } = fail(name)] = cases;
      const known = alerts.find((one) => one.alert === alert) ?? fail(alert);
      const rules = join(files.path, `${alert}.rules.json`);
      writeFileSync(rules, JSON.stringify({ groups: [{ name: alert, rules: [known] }] }));
      const path = join(files.path, `${name}.json`);
      const content = {
        rule_files: [rules, recordingFile],
        evaluation_interval: interval,
        tests: cases.flatMap((one) => unitTest(known, one)),
      };
      writeFileSync(path, JSON.stringify(content));
      return path;
    });
    const { code, output } = await promtool(binaries, ['test', 'rules', ...paths]);
    expect(code, output).to.equal(0);
  });

  it('are rules that promtool accepts', async function () {
    const binaries = await need(this, prometheusBinaries());
    const { code, output } = await promtool(binaries, [
      'check',
      'rules',
      '--lint-fatal',
      alertsFile,
      recordingFile,
    ]);
    expect(code, output).to.equal(0);
  });

  it('ask for metrics that the relay has', async () => {
    const metrics = new Metrics(undefined, { process: true });
    metrics.relay('', () => ({}));
    metrics.persistence(() => ({}));
    const text = await metrics.text();
    for (const file of [alertsFile, recordingFile]) {
      for (const [name] of readFileSync(file, 'utf8').matchAll(
        /\b(?<!:)(distributary|nodejs|process)_[a-z_0-9]+\b(?!:)/g,
      ))
        expect(text, file).to.include(`# TYPE ${name.replace(/_(bucket|count)$/, '')} `);
    }
  });

  it('lead to runbooks that say the symptoms, the cause, what to do and how to know that it is resolved', () => {
    for (const { alert, annotations } of alerts) {
      const page = join(root, annotations.runbook_url);
      expect(existsSync(page), annotations.runbook_url).to.equal(true);
      const text = readFileSync(page, 'utf8');
      expect(text, annotations.runbook_url).to.include(`\`${alert}\``);
      const headings = [...text.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading);
      expect(headings, annotations.runbook_url).to.deep.equal([
        'Symptoms',
        'Cause',
        'What to do',
        'How to know that it is resolved',
      ]);
    }
  });

  it('are listed in docs/operations.md as they are (ALERTS=write writes it)', () => {
    const text = readFileSync(operations, 'utf8');
    const listed = text.replace(
      /(<!-- alerts -->\n)[^]*?(\n<!-- end of alerts -->)/,
      (_, start, end) => `${start}${table()}${end}`,
    );
    if (process.env['ALERTS'] === 'write') writeFileSync(operations, listed);
    expect(readFileSync(operations, 'utf8')).to.equal(listed);
    expect(listed).to.include('<!-- alerts -->');
  });
});
