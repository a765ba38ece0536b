import { useEffect } from 'preact/hooks';
import { wrongOnes } from '../src/observe/problems.ts';
import { ChangeThatWaits } from './change.tsx';
import { Charts } from './charts.tsx';
import { ClientPage } from './client-page.tsx';
import { Clients } from './clients.tsx';
import { Events } from './events.tsx';
import { FanOut } from './fan-out.tsx';
import { Heading } from './heading.tsx';
import type { LiveState } from './live.ts';
import { type Live, useLive } from './live.ts';
import { Load } from './load.tsx';
import { type Query, useQuery } from './location.ts';
import { Matrix } from './matrix.tsx';
import { Problems } from './problems.tsx';
import { ResourcePage } from './resource-page.tsx';
import { Runbook } from './runbook.tsx';

export function App({ live }: { readonly live: Live }) {
  const state = useLive(live);
  const query = useQuery();
  const { nodeId, ready } = state.model.relay;
  const count = wrongOnes(state.model.problems).length + state.model.moreProblems;
  useEffect(() => {
    document.title = `${count === 0 ? '' : `(${count}) `}${nodeId.slice(0, 60)}: ${ready ? 'ready' : 'not ready'} (distributary)`;
  }, [nodeId, ready, count]);
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <Heading state={state} pause={(paused) => live.pause(paused)} />
      <main id="main">{content(state, query)}</main>
    </>
  );
}

function content(state: LiveState, query: Query) {
  const { show = '' } = query;
  const isLive = !state.paused;
  if (show === 'client') return <ClientPage id={query['id'] ?? ''} isLive={isLive} />;
  if (show === 'resource') {
    return <ResourcePage type={query['type'] ?? ''} name={query['name'] ?? ''} isLive={isLive} />;
  }
  if (show === 'runbook') return <Runbook name={query['name'] ?? ''} />;
  return (
    <>
      <Problems model={state.model} />
      <ChangeThatWaits model={state.model} query={query} isLive={isLive} />
      <div class="overview">
        <FanOut model={state.model} query={query} />
        <Charts figures={state.figures} />
      </div>
      <Clients model={state.model} query={query} isLive={isLive} />
      <Matrix model={state.model} query={query} isLive={isLive} />
      <Load query={query} isLive={isLive} />
      <Events model={state.model} />
    </>
  );
}
