import { errorShare, perSecond } from '../src/observe/format.ts';
import { countedLong, parametersLabel } from '../src/observe/problems.ts';
import type { Loads } from './answers.ts';
import { Search } from './clients.tsx';
import { type PartProps, useTicks } from './live.ts';
import { go, hrefOf, type Query } from './location.ts';
import { useAnswer } from './relay.ts';
import { shown } from './shown.ts';
import { Table } from './table.tsx';

const rowsShown = 30;
const refreshMs = 10_000;

/** What clients report of their requests (LRS): as `distributary load`, those with errors first. */
export function Load({ query, isLive }: Pick<PartProps, 'query' | 'isLive'>) {
  const { load: search = '' } = query;
  const refresh = useTicks(refreshMs, isLive);
  const cluster = search === '' || search.includes('*') ? search : `*${search}*`;
  const request = { cluster, limit: rowsShown, errors_first: true };
  const { answer, error } = useAnswer<Loads>('Load', request, refresh);
  return (
    <section aria-labelledby="load">
      <h2 id="load">Load</h2>
      <div class="filters">
        <Search
          text={search}
          label="Search by reported cluster"
          changed={(text) => go(hrefOf({ ...query, load: text }), true)}
        />
      </div>
      {error !== '' && <p class="bad">{error}</p>}
      {answer?.no_answer !== undefined && <p class="warn">Incomplete: {answer.no_answer}.</p>}
      {answer?.loads.length === 0 &&
        (search === '' ? <HowToReport /> : <p class="dim">No cluster matches.</p>)}
      {answer !== undefined && answer.loads.length > 0 && <LoadTable answer={answer} query={query} />}
    </section>
  );
}

function HowToReport() {
  return (
    <p class="dim">
      No client has reported any request. A client reports if its control plane asks for load reports (LRS),
      or if this relay does: <code>rollout.traffic</code>. Envoy opens the stream with{' '}
      <code>cluster_manager.load_stats_config</code> in its bootstrap, gRPC for clusters with{' '}
      <code>lrs_server</code> (docs/safe-change.md#traffic). With <code>load_reports: OFF</code> at all
      upstreams, only <code>rollout.traffic</code> takes them.
    </p>
  );
}

function LoadTable({ answer, query }: { readonly answer: Loads; readonly query: Query }) {
  const { loads, total, seconds } = answer;
  return (
    <>
      <Table
        labelledBy="load"
        caption="Requests by cluster and class, those with the most errors first"
        columns={['Cluster', 'Class', 'Requests/s', 'Errors', 'Dropped/s']}
      >
        {loads.map(({ cluster, class: id, parameters, requests, errors, dropped }) => (
          <tr key={`${id} ${cluster}`}>
            <th scope="row" class="mono">
              {cluster === '' ? '(empty name)' : shown(cluster)}
            </th>
            <td>
              <a href={hrefOf({ ...query, class: id, page: '' }, '#clients')}>
                {shown(parametersLabel(parameters))}
              </a>
            </td>
            <td>{perSecond(requests, seconds)}</td>
            <td class={errors > 0 ? 'bad' : ''}>{errorShare(errors, requests)}</td>
            <td>{perSecond(dropped, seconds)}</td>
          </tr>
        ))}
      </Table>
      <p class="dim">
        {countedLong(loads.length, 'row')} of the last {Math.round(seconds)} s
        {total > loads.length && `, ${(total - loads.length).toLocaleString('en')} not shown`}
      </p>
    </>
  );
}
