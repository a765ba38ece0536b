import { formatBytes } from '../src/observe/format.ts';
import { readyText, sentence, worstOf, wrongOnes } from '../src/observe/problems.ts';
import { Fact } from './fact.tsx';
import type { LiveState } from './live.ts';
import { styleOf } from './problems.tsx';
import { Moment, Since, useNow } from './time.tsx';

interface HeadingProps {
  readonly state: LiveState;
  readonly pause: (paused: boolean) => void;
}

/** Green is for what needs no look. */
function stateStyle(ready: boolean, { problems }: LiveState['model']): string {
  if (!ready) return 'bad';
  return wrongOnes(problems).length > 0 ? 'warn' : 'ok';
}

/** Which relay this is, and one sentence. */
export function Heading({ state, pause }: HeadingProps) {
  const { model, paused, lostSince, refused } = state;
  const { relay, problems, moreProblems, clients } = model;
  const now = useNow();
  return (
    <header>
      <div class="identity">
        <h1>
          <a href={location.pathname}>{relay.nodeId}</a>
        </h1>
        <span class={`state ${stateStyle(relay.ready, model)}`}>
          {readyText(relay.ready, problems, moreProblems)}
        </span>
        <nav aria-label="Raw data">
          <a href="ready">ready</a>
          <a href="metrics">metrics</a>
          <a href="config_dump">configuration</a>
        </nav>
        <button type="button" aria-pressed={paused} onClick={() => pause(!paused)}>
          {paused ? 'Resume' : 'Pause'}
        </button>
      </div>
      <p class={`sentence ${styleOf(worstOf(problems))}`} aria-hidden="true">
        {sentence(clients, problems, moreProblems, now)}
      </p>
      {/* Read aloud when something has changed, and not each second. */}
      <p class="hidden" role="status">
        {sentence(clients, problems, moreProblems)}
      </p>
      <dl class="facts">
        <Fact name="host">{relay.host}</Fact>
        <Fact name="version">{relay.version}</Fact>
        <Fact name="up for">
          <Since at={relay.startedAt} />
        </Fact>
        <Fact name="configuration">
          <code title={relay.configuration}>{relay.configuration.slice(0, 12)}</code>, read{' '}
          <Moment at={relay.configuredAt} />
        </Fact>
        <Fact name="cache">{formatBytes(model.cacheBytes)}</Fact>
        {relay.workers.length > 0 && (
          <Fact name="workers">
            {relay.workers.filter(({ listening }) => listening).length} of {relay.workers.length}
          </Fact>
        )}
        {relay.readOnly && <Fact name="access">read only</Fact>}
      </dl>
      <div role="alert">
        {refused !== '' && (
          <p class="lost">This page is not kept up to date: {refused}. It asks again every half a minute.</p>
        )}
        {lostSince > 0 && (
          <p class="lost">
            No answer since {new Date(lostSince).toLocaleTimeString()}. The data below may be out of date.
          </p>
        )}
      </div>
    </header>
  );
}
