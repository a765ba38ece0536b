import { useState } from 'preact/hooks';
import { errorText, printable, printableJson } from '../src/model/text.ts';
import { countedLong, parametersLabel } from '../src/observe/problems.ts';
import type { ClientDetail, Differences, Explanation, Holding } from './answers.ts';
import { Fact } from './fact.tsx';
import { useTicks } from './live.ts';
import { hrefOf } from './location.ts';
import { useAnswer } from './relay.ts';
import { shown } from './shown.ts';
import { StateText } from './state-text.tsx';
import { Table } from './table.tsx';
import { Moment } from './time.tsx';

const refreshMs = 5000;
const limit = 500;

/** One client: what it was sent, what it made of it, and why it gets that. */
export function ClientPage({ id, isLive }: { readonly id: string; readonly isLive: boolean }) {
  const refresh = useTicks(refreshMs, isLive);
  const { answer, error } = useAnswer<ClientDetail>('GetClient', { id, limit }, refresh);
  return (
    <article>
      <p>
        <a href={location.pathname}>← overview</a>
      </p>
      <h2>
        Client <span class="mono">{shown(answer?.node_id || id)}</span>
      </h2>
      {error !== '' && <p class="bad">{error}</p>}
      {answer !== undefined && <Detail client={answer} />}
    </article>
  );
}

function Detail({ client }: { readonly client: ClientDetail }) {
  const { holdings, total } = client;
  const types = [...Map.groupBy(holdings, ({ type }) => type)];
  return (
    <>
      <dl class="facts">
        <Fact name="stream">{client.id}</Fact>
        <Fact name="cluster">{shown(client.node_cluster)}</Fact>
        <Fact name="peer">{shown(client.peer)}</Fact>
        <Fact name="protocol">
          {client.transport} ({client.service})
        </Fact>
        <Fact name="class">
          <a href={hrefOf({ class: client.class }, '#clients')}>
            {shown(parametersLabel(client.parameters))}
          </a>
        </Fact>
      </dl>
      {types.length === 0 && <p class="dim">This client has not subscribed to anything yet.</p>}
      {types.map(([type, own]) => (
        <section key={type} aria-labelledby={`type-${type}`}>
          <h3 id={`type-${type}`}>
            {shown(type)} <span class="dim">{own.length.toLocaleString('en')}</span>
          </h3>
          <Table
            class="holdings"
            labelledBy={`type-${type}`}
            caption={`What the client was sent of ${shown(type)}`}
            columns={['Name', 'State', 'Sent', 'Version', 'Since', 'Why']}
          >
            {own.map((holding) => (
              <Row key={`${holding.name} ${holding.constraints}`} client={client.id} holding={holding} />
            ))}
          </Table>
        </section>
      ))}
      {total > holdings.length && <p class="dim">and {countedLong(total - holdings.length, 'more name')}</p>}
      <Difference client={client} />
    </>
  );
}

function Row({ client, holding }: { readonly client: string; readonly holding: Holding }) {
  const [open, setOpen] = useState(false);
  const { type, name, state, sent, constraints, version, since, current, error } = holding;
  return (
    <>
      <tr>
        <th scope="row" class="mono">
          <a href={hrefOf({ show: 'resource', type, name })}>{name === '' ? '(empty name)' : shown(name)}</a>
        </th>
        <td>
          <StateText state={state} />
          {!current && <span class="warn">, a newer version is pending</span>}
          {error !== '' && <ErrorOf text={error} />}
        </td>
        <td class="mono">
          {sent === 'present' ? shown(constraints, 300) : sent === 'absent' ? 'does not exist' : ''}
        </td>
        <td class="mono">{shown(version, 60)}</td>
        <td>{since !== '' && <Moment at={Date.parse(since)} />}</td>
        <td>
          <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
            explain<span class="hidden"> {shown(name)}</span>
          </button>
        </td>
      </tr>
      {open && (
        <tr>
          <td colSpan={6}>
            <Explain client={client} type={type} name={name} />
          </td>
        </tr>
      )}
    </>
  );
}

/** What was wrong, and the whole of what the client said of it. */
function ErrorOf({ text }: { readonly text: string }) {
  const short = errorText(text, 300);
  if (short === text) return <p class="detail bad">{printable(text)}</p>;
  return (
    <details class="detail bad">
      <summary>{printable(short)}</summary>
      <pre>{text.split('\n').map(printable).join('\n')}</pre>
    </details>
  );
}

function Explain({ client, type, name }: Readonly<Record<'client' | 'type' | 'name', string>>) {
  const { answer, error } = useAnswer<Explanation>('Explain', { client, type, name }, 0);
  if (error !== '') return <p class="bad">{error}</p>;
  if (answer === undefined) return <p class="dim">…</p>;
  return (
    <>
      <p>
        {answer.match_found
          ? `It gets the variant ${shown(answer.match, 500)}`
          : `No variant matches: the name is ${answer.state}`}
        {answer.ambiguous && <span class="warn">; several variants match</span>}.
      </p>
      <ul class="plain">
        {answer.variants.map(({ constraints, matches, reason, version, upstream }) => (
          <li key={`${constraints} ${upstream}`}>
            <span class={matches ? 'ok' : 'dim'}>{matches ? 'matches' : 'does not match'}</span>{' '}
            <code>{shown(constraints, 500)}</code>: {shown(reason, 500)}{' '}
            <span class="dim">
              (version {shown(version, 60)}, {upstream})
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

/** What it was sent against what a client with its parameters gets now. Only what is opened is compared. */
function Difference({ client }: { readonly client: ClientDetail }) {
  const { holdings, total } = client;
  const pending = holdings.filter(({ current }) => !current);
  return (
    <section aria-labelledby="difference">
      <h3 id="difference">Differences from what is cached for its parameters</h3>
      {pending.length === 0 && (
        <p class="dim">
          {total > holdings.length
            ? 'None in the names above; the others are not compared.'
            : 'None: it was sent the newest version.'}
        </p>
      )}
      <ul class="plain">
        {pending.map(({ type, name, constraints }) => (
          <li key={`${type} ${name} ${constraints}`}>
            <Pending client={client} type={type} name={name} />
          </li>
        ))}
      </ul>
    </section>
  );
}

interface PendingProps {
  readonly client: ClientDetail;
  readonly type: string;
  readonly name: string;
}

function Pending({ client, type, name }: PendingProps) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>
        {shown(type)} <span class="mono">{shown(name)}</span>
      </summary>
      {open && <Fields client={client} type={type} name={name} />}
    </details>
  );
}

function Fields({ client, type, name }: PendingProps) {
  const sides = { from: { client: client.id }, to: { parameters: { values: client.parameters } } };
  const { answer, error } = useAnswer<Differences>('Diff', { ...sides, type, name }, 0);
  if (error !== '') return <p class="bad">{error}</p>;
  return (
    <>
      {answer?.differences.flatMap(({ variants }) =>
        variants.map(({ constraints, yaml }) => (
          <pre key={constraints}>
            {shown(constraints, 500)}
            {'\n'}
            {printableJson(yaml)}
          </pre>
        )),
      )}
    </>
  );
}
