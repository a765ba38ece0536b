import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { type Kind, problemKinds } from '../../../src/observe/problems.ts';
import { eventually } from './eventually.ts';
import { root } from './paths.ts';
import { outcome } from './process.ts';
import { distributary, type RelayProcess } from './relay.ts';

const seen = z.object({ kind: z.string(), severity: z.string(), runbook: z.string() });
const readiness = z.object({ ready: z.boolean(), problems: z.array(seen).nullable() });
const status = z.object({
  problems: z.array(
    z.object({ kind: z.string(), title: z.string(), detail: z.string(), runbook: z.string() }),
  ),
});
/** Figures are looked at every 5 s. */
export const patient = { timeout: 30_000 };

/** What each place says of a kind of problem. `code`: of `status --check`. */
export async function everywhere(relay: RelayProcess, kind: string, code: number): Promise<string> {
  let said = '';
  await eventually(async () => {
    const { body } = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
    const known = status.parse(JSON.parse(body)).problems;
    const found = known.find((one) => one.kind === kind);
    expect(found, JSON.stringify(known.map((one) => one.kind))).to.not.equal(undefined);
    const { title = '', detail = '', runbook = '' } = found ?? {};
    said = `${title}: ${detail}`;
    const { problems } = readiness.parse(JSON.parse((await relay.get('/ready')).body));
    expect(problems?.map((one) => one.kind)).to.include(kind);
    expect(existsSync(join(root, 'docs/runbooks', `${runbook}.md`)), runbook).to.equal(true);
    expect((await relay.get(`/runbooks/${runbook}`)).status).to.equal(200);
    const page = (await relay.get('/')).body;
    expect(page).to.include(`"kind":"${kind}"`);
    const shown = await outcome(distributary('status', '--admin', `http://${relay.admin}`));
    expect(shown.output).to.include(title);
    const checked = await outcome(distributary('status', '--check', '--admin', `http://${relay.admin}`));
    expect(checked.code, checked.output).to.equal(code);
  }, patient);
  return said;
}

export async function isOver(relay: RelayProcess, kind: string): Promise<void> {
  await eventually(async () => {
    const { problems } = readiness.parse(JSON.parse((await relay.get('/ready')).body));
    expect(problems?.map((one) => one.kind)).to.not.include(kind);
  }, patient);
}

const rules = z.object({
  groups: z.array(z.object({ rules: z.array(z.object({ alert: z.string(), expr: z.string() })) })),
});
/** What is compared with a bound at once: `metric == 0`, `metric - time() < 7 * 86400`. */
const comparison = /^(?<name>\w+)(?<since> - time\(\))? (?<how>==|<) (?<bound>[\d *]+)$/;

/** The labels of the series for which an alert of this kind of problem fires. */
export async function firing(relay: RelayProcess, kind: Kind): Promise<readonly string[]> {
  const known = rules.parse(parse(readFileSync(join(root, 'deploy/observability/alerts.yaml'), 'utf8')));
  const alerts: readonly string[] = problemKinds[kind].alerts;
  const { body } = await relay.get('/metrics');
  const samples = [...body.matchAll(/^(\w+)\{(.*)\} (\S+)$/gm)];
  return known.groups
    .flatMap((group) => group.rules)
    .filter(({ alert }) => alerts.includes(alert))
    .flatMap(({ alert, expr }) => {
      const { name, since, how, bound = '' } = comparison.exec(expr)?.groups ?? {};
      const limit = bound.split('*').reduce((product, factor) => product * Number(factor), 1);
      return samples.flatMap(([, metric, labels = '', text]) => {
        if (metric !== name) return [];
        const value = Number(text) - (since === undefined ? 0 : Date.now() / 1000);
        return (how === '<' ? value < limit : value === limit) ? `${alert} ${labels}` : [];
      });
    });
}
