import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { status as statusCommand } from '../../../src/commands/status.ts';
import { type Kind, problemKinds } from '../../../src/observe/problems.ts';
import { read } from '../../docs/page.ts';
import { type EventuallyOptions, eventually } from './eventually.ts';
import type { RelayProcess } from './relay.ts';

const problem = z.object({ kind: z.string(), title: z.string(), detail: z.string(), runbook: z.string() });
const status = z.object({ problems: z.array(problem) });
const readiness = z.object({
  ready: z.boolean(),
  problems: z
    .array(z.object({ kind: z.string(), severity: z.string(), since: z.string(), runbook: z.string() }))
    .nullable(),
});

/** Twenty seconds: /ready may be ten seconds old. More only where the machine is so busy that a look takes its time. */
const looks = 80;
const pauseMs = 250;

/** The first answer of `check` within so many looks. */
export async function soon<T>(check: () => T | Promise<T>): Promise<T> {
  for (let look = 1; ; look++) {
    try {
      return await check();
    } catch (error) {
      if (look === looks) throw error;
    }
    await sleep(pauseMs);
  }
}

/** What /ready says is wrong. */
export async function kindsOf(relay: RelayProcess): Promise<readonly string[]> {
  const { problems } = readiness.parse(JSON.parse((await relay.get('/ready')).body));
  return problems?.map(({ kind }) => kind) ?? [];
}

/** What the relay, its page, `status`, /ready and the log say of a kind of problem. `code`: of `status --check`. */
export async function everywhere(
  relay: RelayProcess,
  kind: Kind,
  code: number,
  says: RegExp = /^/,
): Promise<string> {
  const { title, detail, runbook } = await soon(async () => {
    const { body } = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
    const { problems } = status.parse(JSON.parse(body));
    const found = problems.find((one) => one.kind === kind && says.test(`${one.title}: ${one.detail}`));
    if (found === undefined) throw new Error(`${kind} is not said: ${JSON.stringify(problems)}`);
    // Of one moment: the relay counts anew every five seconds, and a title may have a number.
    expect((await statusOf(relay)).printed).to.include(found.title);
    return found;
  });
  expect(runbook).to.equal(problemKinds[kind].runbook);
  expect((await relay.get(`/runbooks/${runbook}`)).status).to.equal(200);
  await soon(async () => expect(await kindsOf(relay)).to.include(kind));
  await soon(async () => expect((await relay.get('/')).body).to.include(`"kind":"${kind}"`));
  const logged = (): readonly string[] => relay.log.map(({ message }) => withoutCounts(message));
  await soon(() => expect(logged()).to.include(withoutCounts(`problem: ${title}`)));
  const checked = await statusOf(relay, '--check');
  expect(checked.code, checked.printed).to.equal(code);
  return `${title}: ${detail}`;
}

/** The log says it once, with the number of clients of that moment. */
const withoutCounts = (text: string): string => text.replaceAll(/\d+|s\b/g, '');

/** The command in this process: that it is one, the runbooks show. */
async function statusOf(relay: RelayProcess, ...flags: readonly string[]) {
  let printed = '';
  const terminal = { out: (text: string) => void (printed += text), err: () => {}, environment: {} };
  const code = await statusCommand([...flags, '--admin', `http://${relay.admin}`], terminal);
  return { code, printed };
}

/** `waits`: for what is over later than most. */
export async function isOver(relay: RelayProcess, kind: Kind, waits: EventuallyOptions = {}): Promise<void> {
  await eventually(async () => expect(await kindsOf(relay)).to.not.include(kind), waits);
}

const rules = z.object({
  groups: z.array(z.object({ rules: z.array(z.object({ alert: z.string(), expr: z.string() })) })),
});
/**
 * What is compared with a bound at once: `metric{label="x"} == 0`, `metric - time() < 7 * 86400`. So is a counter that is
 * younger than the time in which the alert looks for its growth.
 */
const comparison =
  /(?:^|\()(?<name>distributary_\w+)(?:\{(?<selected>[\w="]+)\})?(?<since> - time\(\))? (?<how>==|<|>) (?<bound>[\d *]+)(?:$| unless |\s+and )/;

/** The alerts of a kind of problem, as they are written. */
export function alertsOf(kind: Kind): readonly { readonly alert: string; readonly expr: string }[] {
  const known = rules.parse(parse(read('deploy/observability/alerts.yaml')));
  const own: readonly string[] = problemKinds[kind].alerts;
  return known.groups.flatMap((group) => group.rules).filter(({ alert }) => own.includes(alert));
}

/** Whether `firing` can say it: rates and shares are for Prometheus. */
export const isComparable = ({ expr }: { readonly expr: string }): boolean => comparison.test(expr);

/** The labels of the series for which an alert of this kind of problem fires, once it has lasted. */
export async function firing(relay: RelayProcess, kind: Kind): Promise<readonly string[]> {
  const { body } = await relay.get('/metrics');
  const samples = [...body.matchAll(/^(\w+)(?:\{(.*)\})? (\S+)$/gm)];
  return alertsOf(kind).flatMap(({ alert, expr }) => {
    const { name, selected = '', since, how, bound = '' } = comparison.exec(expr)?.groups ?? {};
    const limit = bound.split('*').reduce((product, factor) => product * Number(factor), 1);
    return samples.flatMap(([, metric, labels = '', text]) => {
      if (metric !== name || !labels.includes(selected)) return [];
      const value = Number(text) - (since === undefined ? 0 : Date.now() / 1000);
      const fires = how === '<' ? value < limit : how === '>' ? value > limit : value === limit;
      return fires ? [`${alert} ${labels}`.trimEnd()] : [];
    });
  });
}
