import { countedLong, parametersLabel } from '../src/observe/problems.ts';
import type { Match, Matches } from './answers.ts';
import { Choice, Search } from './clients.tsx';
import { type PartProps, useTicks } from './live.ts';
import { go, hrefOf } from './location.ts';
import { Pages } from './pages.tsx';
import { useAnswer } from './relay.ts';
import { shown } from './shown.ts';
import { Table } from './table.tsx';

const pageSize = 30;
const refreshMs = 10_000;
/** Styles for distinct contents of a name; after the last they begin again, and the letters go on. */
const styles = 8;

/** Which variant of each name each parameter set gets. */
export function Matrix({ model, query, isLive }: PartProps) {
  const cached = model.types.filter(({ resources }) => resources > 0).map(({ type }) => type);
  const type = query['matrix'] ?? cached[0] ?? '';
  return (
    <section aria-labelledby="matrix">
      <h2 id="matrix">Variants</h2>
      {type === '' ? (
        <p class="dim">Nothing is cached yet.</p>
      ) : (
        <Chosen type={type} types={cached} query={query} isLive={isLive} />
      )}
    </section>
  );
}

function Chosen({
  type,
  types,
  query,
  isLive,
}: Omit<PartProps, 'model'> & { readonly type: string; readonly types: readonly string[] }) {
  const { names = '' } = query;
  const page = Math.max(1, Number(query['matrixpage'] ?? 1) || 1);
  const refresh = useTicks(refreshMs, isLive);
  const request = { type, name: names, page_size: pageSize, offset: (page - 1) * pageSize };
  const { answer, error } = useAnswer<Matches>('ListMatches', request, refresh);
  return (
    <>
      <div class="filters">
        <Choice
          name="Type of the variants"
          value={type}
          options={[...new Set([...types, type])].map((name) => [name, name] as const)}
          changed={(value) => go(hrefOf({ ...query, matrix: value, matrixpage: '' }), true)}
        />
        <Search
          text={names}
          label="Search by name"
          changed={(text) => go(hrefOf({ ...query, names: text, matrixpage: '' }), true)}
        />
        <span class="legend dim">
          Within a row, the same letter is the same content. <b class="cell gap">–</b> nothing matches,{' '}
          <b class="cell unknown">?</b> not known yet, <b class="mark">≈</b> several match,{' '}
          <b class="mark bad">✕</b> rejected
        </span>
      </div>
      {error !== '' && <p class="bad">{error}</p>}
      {answer !== undefined && <MatchTable type={type} matches={answer} labelledBy="matrix" />}
      {answer !== undefined && (
        <Pages
          page={page}
          pages={Math.ceil(answer.total / pageSize)}
          href={(to) => hrefOf({ ...query, matrixpage: to === 1 ? '' : String(to) }, '#matrix')}
          what="variants"
        />
      )}
    </>
  );
}

interface MatchTableProps {
  readonly type: string;
  readonly matches: Matches;
  readonly labelledBy: string;
}

export function MatchTable({ type, matches, labelledBy }: MatchTableProps) {
  const { parameter_sets: sets, names, total_parameter_sets: allSets } = matches;
  if (names.length === 0) return <p class="dim">No name matches.</p>;
  if (sets.length === 0) return <p class="dim">No client is connected, so there are no parameter sets.</p>;
  return (
    <>
      <Table
        class="matrix"
        labelledBy={labelledBy}
        caption={`Names of ${shown(type)} by the parameter sets of clients`}
        columns={[
          'Name',
          ...sets.map(({ parameters, streams }) => (
            <>
              {shown(parametersLabel(parameters))} <span class="dim">{streams.toLocaleString('en')}</span>
            </>
          )),
        ]}
      >
        {names.map(({ name, matches: cells }) => (
          <tr key={name}>
            <th scope="row" class="mono">
              <a href={hrefOf({ show: 'resource', type, name })}>
                {name === '' ? '(empty name)' : shown(name)}
              </a>
            </th>
            <Cells cells={cells} />
          </tr>
        ))}
      </Table>
      {allSets > sets.length && (
        <p class="dim">and {countedLong(allSets - sets.length, 'more parameter set')}, with fewer clients</p>
      )}
    </>
  );
}

/** In the order of their letters. */
const contentsOf = (cells: readonly Match[]): readonly string[] => [
  ...new Set(cells.filter(({ state }) => state === 'present').map(({ content }) => content)),
];

function Cells({ cells }: { readonly cells: readonly Match[] }) {
  const contents = contentsOf(cells);
  return (
    <>
      {cells.map((match, index) => (
        <Cell key={index} match={match} order={contents.indexOf(match.content)} />
      ))}
    </>
  );
}

function Cell({ match, order }: { readonly match: Match; readonly order: number }) {
  const { state, constraints, version, ambiguous, rejected } = match;
  const marks = (
    <>
      {ambiguous && (
        <b class="mark" title="Several variants match">
          ≈<span class="hidden"> several match</span>
        </b>
      )}
      {rejected > 0 && (
        <b class="mark bad" title={`${countedLong(rejected, 'client')} rejecting it`}>
          ✕{rejected}
          <span class="hidden"> rejecting it</span>
        </b>
      )}
    </>
  );
  if (state !== 'present') {
    const isAbsent = state === 'absent';
    return (
      <td>
        <b
          class={`cell ${isAbsent ? 'gap' : 'unknown'}`}
          title={isAbsent ? 'Nothing matches' : 'Not known yet'}
        >
          <span aria-hidden="true">{isAbsent ? '–' : '?'}</span>
          <span class="hidden">{isAbsent ? 'nothing matches' : 'not known yet'}</span>
        </b>
        {marks}
      </td>
    );
  }
  return (
    <td>
      <Letter order={order} title={shown(`${constraints}, version ${version}`, 500)} />
      {marks}
    </td>
  );
}

/** The letter that a variant has in the row of its name; nothing if no client gets it. */
export function VariantLetter({
  cells,
  constraints,
}: {
  readonly cells: readonly Match[];
  readonly constraints: string;
}) {
  const match = cells.find((cell) => cell.state === 'present' && cell.constraints === constraints);
  if (match === undefined) return null;
  return <Letter order={contentsOf(cells).indexOf(match.content)} />;
}

function Letter({ order, title }: { readonly order: number; readonly title?: string }) {
  return (
    <b class={`cell v${order % styles}`} title={title}>
      {letters(order)}
    </b>
  );
}

/** A … Z, AA … */
function letters(order: number): string {
  const last = String.fromCodePoint(65 + (order % 26));
  return order < 26 ? last : letters(Math.floor(order / 26) - 1) + last;
}
