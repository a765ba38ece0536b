import { printableJson } from '../src/model/text.ts';
import { formatBytes } from '../src/observe/format.ts';
import type { Clients, Match, Matches, Resource } from './answers.ts';
import { useTicks } from './live.ts';
import { hrefOf } from './location.ts';
import { MatchTable, VariantLetter } from './matrix.tsx';
import { useAnswer } from './relay.ts';
import { shown } from './shown.ts';
import { StateText } from './state-text.tsx';
import { Moment } from './time.tsx';

const refreshMs = 5000;
const clientsShown = 25;
/** A longer body is text for a file, and not for a page. */
const longestJson = 200_000;

interface ResourceProps {
  readonly type: string;
  readonly name: string;
  readonly isLive: boolean;
}

/** One resource: its variants with their content, and who has it. */
export function ResourcePage({ type, name, isLive }: ResourceProps) {
  const refresh = useTicks(refreshMs, isLive);
  const resource = useAnswer<Resource>('GetResource', { type, name }, refresh);
  const matches = useAnswer<Matches>('ListMatches', { type, name, page_size: 200 }, refresh).answer;
  const own = matches?.names.filter((one) => one.name === name) ?? [];
  const cells = own.flatMap((one) => one.matches);
  return (
    <article>
      <p>
        <a href={location.pathname}>← overview</a>
      </p>
      <h2>
        {shown(type)} <span class="mono">{shown(name)}</span>
      </h2>
      {resource.error !== '' && <p class="bad">{resource.error}</p>}
      {matches !== undefined && own.length > 0 && (
        <section aria-labelledby="gets">
          <h3 id="gets">Who gets which variant</h3>
          <MatchTable type={type} matches={{ ...matches, names: own }} labelledBy="gets" />
        </section>
      )}
      {resource.answer?.variants.map((variant) => (
        <Variant key={`${variant.constraints} ${variant.upstream}`} variant={variant} cells={cells} />
      ))}
      <WhoHasIt type={type} name={name} refresh={refresh} />
    </article>
  );
}

function Variant({
  variant,
  cells,
}: {
  readonly variant: Resource['variants'][number];
  readonly cells: readonly Match[];
}) {
  const { constraints, version, bytes, since, upstream, json, omitted } = variant;
  return (
    <section class="variant">
      <h3>
        <VariantLetter cells={cells} constraints={constraints} />{' '}
        <span class="mono">{shown(constraints, 500)}</span>
      </h3>
      <p class="dim">
        version {shown(version, 60)}, {formatBytes(bytes)}, from {upstream}, since{' '}
        <Moment at={Date.parse(since)} />
      </p>
      {omitted === '' ? <pre tabIndex={0}>{readable(json)}</pre> : <p class="warn">Not shown: {omitted}.</p>}
    </section>
  );
}

function readable(json: string): string {
  const text = printableJson(JSON.stringify(JSON.parse(json), null, 2));
  return text.length <= longestJson
    ? text
    : `${text.slice(0, longestJson)}\n… ${text.length} characters in all`;
}

function WhoHasIt({
  type,
  name,
  refresh,
}: Pick<ResourceProps, 'type' | 'name'> & { readonly refresh: number }) {
  const { answer, error } = useAnswer<Clients>(
    'ListClients',
    { type, resource: name, limit: clientsShown },
    refresh,
  );
  if (error !== '') return <p class="bad">{error}</p>;
  if (answer === undefined) return null;
  return (
    <section aria-labelledby="has">
      <h3 id="has">
        {answer.matching.toLocaleString('en')}{' '}
        {answer.matching === 1 ? 'client subscribes' : 'clients subscribe'} to it
      </h3>
      <ul class="plain">
        {answer.clients.map(({ id, node, types }) => (
          <li key={id}>
            <a class="mono" href={hrefOf({ show: 'client', id })}>
              {shown(node?.id || `stream ${id}`)}
            </a>{' '}
            {/* The state of the type: a client may subscribe to it and get nothing of it. */}
            {types.map((one) => (
              <span key={one.type}>
                {shown(one.type)} <StateText state={one.state} />
              </span>
            ))}
          </li>
        ))}
      </ul>
      {answer.matching > answer.clients.length && (
        <p>
          <a href={hrefOf({ type, resource: name }, '#clients')}>show all of them</a>
        </p>
      )}
    </section>
  );
}
