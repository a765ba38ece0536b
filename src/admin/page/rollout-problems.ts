import { errorText } from '../../model/error-text.ts';
import { shorten } from '../../model/text.ts';
import { noCanary, releaseCommand } from '../../observe/rollout-text.ts';
import type { Problem } from './model.ts';
import { counted, millisecondsOf, type ProblemInputs, problem } from './problem-parts.ts';

/** Changes that wait, with the time until something happens by itself, and what an operator can type. */
export function rolloutProblems(inputs: ProblemInputs): readonly Problem[] {
  const own = inputs.status.rollout?.noCanary === true ? [] : held(inputs);
  return [...own, ...frozen(inputs), ...heldRemovals(inputs)];
}

/** It may be the fix that the other clients wait for. */
export function withoutCanary(inputs: ProblemInputs): readonly Problem[] {
  if (inputs.status.rollout?.noCanary !== true) return [];
  return held(inputs).map((one) =>
    Object.assign(one, {
      severity: 'bad',
      title: `${one.title}: ${noCanary}`,
      short: `${inputs.status.rollout?.state === 'HELD' ? 'held' : 'a change waits'}: ${noCanary}; \`${releaseCommand}\``,
      command: releaseCommand,
    }),
  );
}

function held({ status: { rollout }, facts }: ProblemInputs): readonly Problem[] {
  if (rollout === undefined || (rollout.state !== 'HELD' && rollout.state !== 'CANARY')) return [];
  const { state, pending, types, names, upstream, reason } = rollout;
  const since = millisecondsOf(rollout.since);
  const { total = 0, accepted = 0, rejected = 0, ended = 0 } = rollout.canaries ?? {};
  const canaries = `${counted(total, 'stream')} of canaries: ${accepted} accepted, ${rejected} rejected, ${ended} ended`;
  const what = `${counted(pending, 'name')} (${types.join(', ')}) of ${shorten(upstream, 60)}`;
  const isHeld = state === 'HELD';
  return [
    problem({
      id: `rollout ${state}`,
      severity: isHeld ? 'bad' : 'warn',
      title: isHeld ? 'A change is held' : 'A change is with the canaries',
      short: isHeld ? 'a change is held' : 'a change is with the canaries',
      detail: [errorText(reason, 300), what, canaries].filter((part) => part !== '').join('; '),
      since,
      until: isHeld || facts.rolloutMaxWaitMs === undefined ? 0 : since + facts.rolloutMaxWaitMs,
      command: isHeld
        ? `${releaseCommand}   or   distributary discard --reason "…"`
        : 'distributary diff --pending',
      runbook: 'change-held',
      ...pendingResource(types, names),
    }),
  ];
}

function frozen({ status: { rollout } }: ProblemInputs): readonly Problem[] {
  return (rollout?.freezes ?? []).map(({ type, upstream, reason, since }) => {
    const only = `${upstream === '' ? '' : ` --upstream ${upstream}`}${type === '' ? '' : ` --type ${type}`}`;
    const what = [type || 'everything', upstream === '' ? '' : `of ${shorten(upstream, 60)}`]
      .join(' ')
      .trim();
    return problem({
      id: `frozen ${type} ${upstream}`,
      title: `Frozen: ${what}`,
      short: `${what} is frozen`,
      detail: shorten(reason, 300),
      since: millisecondsOf(since),
      command: `distributary unfreeze${only} --reason "…"`,
      runbook: 'frozen',
      ...(type === '' ? {} : variantsOf(type)),
    });
  });
}

/** Of gated types the rollout holds them, until somebody decides. */
function heldRemovals({ status: { upstreams }, facts }: ProblemInputs): readonly Problem[] {
  return upstreams.flatMap(({ name, heldRemovals: all }) =>
    all.map(({ type, count, since }) => {
      const held = millisecondsOf(since);
      const hold = facts.removalHoldMs.get(name);
      return problem({
        id: `removals ${name} ${type}`,
        severity: 'bad',
        title: `${counted(count, 'removal')} of ${type} from ${shorten(name, 60)} ${count === 1 ? 'is' : 'are'} held back`,
        short: `${counted(count, 'removal')} of ${type} ${count === 1 ? 'is' : 'are'} held back`,
        since: held,
        until: hold === undefined ? 0 : held + hold,
        command: `distributary release --upstream ${name} --type ${type} --reason "…"`,
        runbook: 'removals-held',
        ...variantsOf(type),
      });
    }),
  );
}

/** The page of the first name that waits; which type it has is known where only one waits. */
function pendingResource(types: readonly string[], names: readonly string[]): Partial<Problem> {
  const [type = ''] = types;
  const [name] = names;
  if (types.length !== 1 || name === undefined) return {};
  return { link: queryOf({ show: 'resource', type, name }), linkText: 'resource' };
}

const variantsOf = (type: string): Partial<Problem> => ({
  link: `${queryOf({ matrix: type })}#matrix`,
  linkText: 'variants',
});

const queryOf = (query: Readonly<Record<string, string>>): string =>
  `?${new URLSearchParams(query).toString()}`;
