import { useEffect, useRef, useState } from 'preact/hooks';
import { errorLine } from '../src/model/text.ts';
import type { Clients as Answer, Client, ClientTypeState } from './answers.ts';
import { type PartProps, useTicks } from './live.ts';
import { go, hrefOf, type Query } from './location.ts';
import { Pages } from './pages.tsx';
import { useAnswer } from './relay.ts';
import { shown } from './shown.ts';
import { StateText } from './state-text.tsx';
import { Table } from './table.tsx';
import { Since } from './time.tsx';

const pageSize = 25;
const refreshMs = 10_000;
/** The relay looks through all clients: not for every letter that is typed. */
const pauseMs = 250;
/** Types of a client that are listed. */
const typesShown = 12;

const states = [
  ['', 'in any state'],
  ['ERROR', 'that rejected something'],
  ['MISSING', 'that get nothing'],
  ['STALE', 'not acknowledged'],
  ['NOT_SENT', 'sent nothing'],
  ['SYNCED', 'acknowledged'],
] as const;

/** The relay searches; the filters are in the URL. */
export function Clients({ model, query, isLive }: PartProps) {
  const { q = '', type = '', state = '', class: ofClass = '', resource = '' } = query;
  const wave = Number(query['wave']) || 0;
  const page = Math.max(1, Number(query['page'] ?? 1) || 1);
  const refresh = useTicks(refreshMs, isLive);
  const filters = { search: q, type, state, class: ofClass, resource, wave };
  const request = { ...filters, limit: pageSize, offset: (page - 1) * pageSize };
  // Who has a problem comes first, so a new problem is a new list.
  const problems = model.problems.map(({ id }) => id).join(' ');
  const { answer, error } = useAnswer<Answer>('ListClients', request, `${refresh} ${problems}`);
  return (
    <section aria-labelledby="clients">
      <h2 id="clients">Clients</h2>
      <Filters model={model} query={query} answer={answer} />
      {error !== '' && <p class="bad">{error}</p>}
      {answer !== undefined && <ClientTable clients={answer.clients} model={model} query={query} />}
      {answer !== undefined && (
        <Pages
          page={page}
          pages={Math.ceil(answer.matching / pageSize)}
          href={(to) => hrefOf({ ...query, page: to === 1 ? '' : String(to) }, '#clients')}
          what="clients"
        />
      )}
    </section>
  );
}

function Filters({
  model,
  query,
  answer,
}: Pick<PartProps, 'model' | 'query'> & { readonly answer: Answer | undefined }) {
  const { q = '', type = '', state = '', class: ofClass = '', resource = '' } = query;
  const filter = (changes: Query, replace = false): void =>
    go(hrefOf({ ...query, ...changes, page: '' }), replace);
  const types = new Set([...model.types.map((one) => one.type), type].filter((name) => name !== ''));
  const label = model.classes.find(({ id }) => id === ofClass)?.label ?? ofClass;
  const matching = answer?.matching.toLocaleString('en');
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <Search text={q} changed={(text) => filter({ q: text }, true)} />
      <Choice
        name="Type"
        value={type}
        options={[['', 'of any type'], ...[...types].map((one) => [one, one] as const)]}
        changed={(value) => filter({ type: value, resource: '' }, true)}
      />
      <Choice
        name="State"
        value={state}
        options={states}
        changed={(value) => filter({ state: value }, true)}
      />
      <Chip text={ofClass && `class ${label}`} remove={() => filter({ class: '' }, true)} />
      <Chip
        text={resource && `${state === 'ERROR' ? 'rejected' : 'with'} ${resource}`}
        remove={() => filter({ resource: '' }, true)}
      />
      <Chip
        text={query['wave'] === undefined ? '' : `wave ${query['wave']}`}
        remove={() => filter({ wave: '' }, true)}
      />
      <span class="dim count" role="status">
        {answer !== undefined && `${matching} of ${answer.total.toLocaleString('en')}`}
      </span>
    </form>
  );
}

interface ChoiceProps {
  readonly name: string;
  readonly value: string;
  readonly options: readonly (readonly [value: string, text: string])[];
  readonly changed: (value: string) => void;
}

export function Choice({ name, value, options, changed }: ChoiceProps) {
  return (
    <label>
      <span class="hidden">{name}</span>
      <select value={value} onChange={({ currentTarget }) => changed(currentTarget.value)}>
        {options.map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A filter that is not in the other fields. */
function Chip({ text, remove }: { readonly text: string; readonly remove: () => void }) {
  if (text === '') return null;
  return (
    <button type="button" class="chip" onClick={remove}>
      {shown(text)} <span aria-hidden="true">×</span>
      <span class="hidden">: remove this filter</span>
    </button>
  );
}

/** What is typed is the user's: an update of the page does not touch it. */
export function Search({
  text,
  changed,
  label = 'Search by node, cluster, address or stream',
}: {
  readonly text: string;
  readonly changed: (text: string) => void;
  readonly label?: string;
}) {
  const [typed, setTyped] = useState(text);
  const [known, setKnown] = useState(text);
  const waiting = useRef<ReturnType<typeof setTimeout>>(undefined);
  // The filters may be others by the time that it is called.
  const latest = useRef(changed);
  latest.current = changed;
  useEffect(() => () => clearTimeout(waiting.current), []);
  if (known !== text) {
    setKnown(text);
    if (text !== typed.trim()) setTyped(text);
  }
  const type = (now: string): void => {
    setTyped(now);
    clearTimeout(waiting.current);
    waiting.current = setTimeout(() => latest.current(now.trim()), pauseMs);
  };
  return (
    <label class="search">
      <span class="hidden">{label}</span>
      <input
        type="search"
        placeholder={label}
        value={typed}
        onInput={({ currentTarget }) => type(currentTarget.value)}
      />
    </label>
  );
}

function ClientTable({
  clients,
  model,
  query,
}: Pick<PartProps, 'model' | 'query'> & { readonly clients: readonly Client[] }) {
  if (clients.length === 0) return <p class="dim">No client matches.</p>;
  const labels = new Map(model.classes.map(({ id, label }) => [id, label]));
  return (
    <Table
      class="clients"
      labelledBy="clients"
      caption="Clients, those that rejected something first"
      columns={['Node', 'Cluster', 'Class', 'Peer', 'Protocol', 'Types']}
    >
      {clients.map((client) => (
        <tr key={client.id}>
          <th scope="row" class="mono">
            <a href={hrefOf({ show: 'client', id: client.id })}>
              {shown(client.node?.id || `stream ${client.id}`)}
            </a>
          </th>
          <td>{shown(client.node?.cluster ?? '')}</td>
          <td>
            <a href={hrefOf({ ...query, class: client.class, page: '' }, '#clients')}>
              {labels.get(client.class) ?? client.class}
            </a>
          </td>
          <td class="mono peer">{shown(client.peer)}</td>
          <td>
            {client.transport}
            <LastPoll client={client} />
          </td>
          <td>
            <Types client={client} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

/** Of a client that polls. */
function LastPoll({ client: { types } }: { readonly client: Client }) {
  const polls = types.filter(({ last_poll: at }) => at !== '').map(({ last_poll: at }) => Date.parse(at));
  if (polls.length === 0) return null;
  return (
    <span class="dim">
      , polled <Since at={Math.max(...polls)} /> ago
    </span>
  );
}

/** Types of which there is the same to say are one entry; those that need a look come first. */
function Types({ client: { types } }: { readonly client: Client }) {
  const rest = types.length - typesShown;
  const alike = Map.groupBy(types.slice(0, typesShown), (one) => `${one.state} ${moreOf(one)}`);
  const entries = [...alike].toSorted(([a], [b]) => rank(a) - rank(b));
  return (
    <ul class="types">
      {entries.map(([key, own]) => (
        <Alike key={key} types={own} />
      ))}
      {rest > 0 && <li class="dim">and {rest} more</li>}
    </ul>
  );
}

const rank = (key: string): number => (key.startsWith('SYNCED') ? 1 : 0);

/** What is said of a type beside its state: the error, or the version of a poll. */
function moreOf({ state, version, last_nack: nack, last_poll: poll }: ClientTypeState): string {
  if (state === 'ERROR' && nack !== '') return errorLine(nack, 200);
  return poll === '' ? '' : shown(version, 30);
}

function Alike({ types }: { readonly types: readonly ClientTypeState[] }) {
  const [first] = types;
  if (first === undefined) return null;
  const more = moreOf(first);
  const isError = first.state === 'ERROR';
  return (
    <li>
      {types.map(({ type, version }, index) => (
        <span key={type} title={shown(version)}>
          {index > 0 && ', '}
          {shown(type)}
        </span>
      ))}{' '}
      <StateText state={first.state} />
      {more !== '' && <span class={isError ? 'bad' : 'mono dim'}>{isError ? `: ${more}` : ` ${more}`}</span>}
    </li>
  );
}
