import type { PageChart, PageModel, PageVerdict } from '../src/admin/page/page-model.ts';
import { formatSeconds } from '../src/observe/format.ts';
import type { Clients } from './answers.ts';
import { Graph, rounded } from './charts.tsx';
import { type PartProps, useTicks } from './live.ts';
import { go, hrefOf, type Query } from './location.ts';
import { useAnswer } from './relay.ts';
import { shown } from './shown.ts';
import { Since, Until } from './time.tsx';

type Change = NonNullable<PageModel['change']>;

const colours: Readonly<Record<string, string>> = { GOOD: 'ok', BAD: 'bad', UNKNOWN: 'warn' };

/** The change that waits: through which wave it goes, for how long still, and who says what of it. */
export function ChangeThatWaits({ model, query, isLive }: PartProps) {
  const { change } = model;
  if (change === undefined) return null;
  const { state, since, what, ends, streams, accepted, rejected, verdicts } = change;
  const opened = Number(query['opened']) || 0;
  return (
    <section class="change" aria-labelledby="change">
      <h2 id="change">
        A change {state === 'HELD' ? 'is held' : 'goes through its waves'}{' '}
        <span class="dim">
          for <Since at={since} />
          {ends > 0 && (
            <>
              , the wave ends <Until at={ends} />
            </>
          )}
        </span>
      </h2>
      <p class="detail">{what}</p>
      <Waves change={change} query={query} />
      {opened > 0 && <WaveClients wave={opened} model={model} isLive={isLive} />}
      <p class="detail">
        {streams.toLocaleString('en')} {streams === 1 ? 'stream has' : 'streams have'} it:{' '}
        {accepted.toLocaleString('en')} accepted, {rejected.toLocaleString('en')} rejected
      </p>
      {verdicts.length > 0 && (
        <ul class="verdicts">
          {verdicts.map((verdict) => (
            <Verdict key={verdict.of} verdict={verdict} />
          ))}
        </ul>
      )}
    </section>
  );
}

function Verdict({ verdict: { of, state, reason, chart } }: { readonly verdict: PageVerdict }) {
  return (
    <li>
      <span class={colours[state]}>{state}</span> <strong>{of}</strong> <span class="dim">{reason}</span>
      {chart !== undefined && <Course chart={chart} />}
    </li>
  );
}

/** What a verdict was so far. Who does not see the picture has the same in words. */
function Course({ chart: { at, lines, marks, unit, text } }: { readonly chart: PageChart }) {
  if (lines.length === 0) return <Marks marks={marks} text={text} />;
  return (
    <figure>
      <figcaption>
        {lines.map(({ name, kind }) => (
          <span key={name} class={`key ${kind}`}>
            {name}
          </span>
        ))}
      </figcaption>
      <p class="hidden">{text}</p>
      <Graph at={at} lines={lines} text={(value) => `${rounded(value)}${unit}`} />
    </figure>
  );
}

const signs: Readonly<Record<string, readonly [sign: string, colour: string]>> = {
  G: ['✓', 'ok'],
  B: ['✗', 'bad'],
  U: ['?', 'warn'],
};

/** Of a check without values. */
function Marks({ marks, text }: { readonly marks: string; readonly text: string }) {
  return (
    <p class="marks" role="img" aria-label={text} title={text}>
      {marks.split('').map((mark, index) => {
        const [sign, colour] = signs[mark] ?? [mark, 'dim'];
        return (
          <span key={index} class={colour}>
            {sign}
          </span>
        );
      })}
    </p>
  );
}

/** A bar of waves. Who is in one opens below it. */
function Waves({ change, query }: { readonly change: Change; readonly query: Query }) {
  const { state, wave, waves } = change;
  const now = state === 'HELD' ? 'bad' : 'now';
  const steps = Array.from({ length: waves + 1 }, (_, index) => index + 1);
  const { opened = '' } = query;
  return (
    <ol class="waves" aria-label="Waves">
      {steps.map((step) => (
        <li
          key={step}
          class={step < wave ? 'over' : step === wave ? now : ''}
          aria-current={step === wave ? 'step' : undefined}
        >
          <button
            type="button"
            aria-expanded={opened === String(step)}
            onClick={() =>
              go(hrefOf({ ...query, opened: opened === String(step) ? '' : String(step) }), true)
            }
          >
            {step > waves ? 'everybody' : `wave ${step}`}
            {step < wave && ', done'}
            <WaveCounts change={change} step={step} />
          </button>
        </li>
      ))}
    </ol>
  );
}

function WaveCounts({ change, step }: { readonly change: Change; readonly step: number }) {
  const counts = change.clients[step - 1];
  if (counts === undefined) return null;
  const { clients, accepted, rejected, seconds } = counts;
  const all = `${clients.toLocaleString('en')} ${clients === 1 ? 'client' : 'clients'}`;
  if (step > change.wave) {
    return (
      <span class="dim">
        {all}
        {seconds > 0 && `, bakes ${formatSeconds(seconds)}`}
      </span>
    );
  }
  return (
    <span class="dim">
      {accepted.toLocaleString('en')} of {all} accepted
      {rejected > 0 && <span class="bad">, {rejected.toLocaleString('en')} rejected</span>}
    </span>
  );
}

/** Of those in the wave that is opened, the first; those that rejected something come before the others. */
const clientsShown = 20;
const refreshMs = 5000;

const words: Readonly<Record<string, readonly [text: string, colour: string]>> = {
  ACCEPTED: ['accepted', 'ok'],
  REJECTED: ['rejected', 'bad'],
  WAITING: ['not answered yet', 'warn'],
};

/** Who is in a wave. `wave`: from 1; more than there are: with everybody. */
function WaveClients({
  wave,
  model,
  isLive,
}: { readonly wave: number } & Pick<PartProps, 'model' | 'isLive'>) {
  const refresh = useTicks(refreshMs, isLive);
  const change = JSON.stringify(model.change?.clients);
  const { answer, error } = useAnswer<Clients>(
    'ListClients',
    { wave, limit: clientsShown },
    `${refresh} ${change}`,
  );
  if (error !== '') return <p class="bad">{error}</p>;
  if (answer === undefined) return null;
  const labels = new Map(model.classes.map(({ id, label }) => [id, label]));
  const more = answer.matching - answer.clients.length;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Clients of the wave">
      <table>
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col">Class</th>
            <th scope="col">Says</th>
          </tr>
        </thead>
        <tbody>
          {answer.clients.map(({ id, node, class: of, wave: at }) => {
            const [text, colour] = words[at?.answer ?? ''] ?? ['does not have it yet', 'dim'];
            return (
              <tr key={id}>
                <th scope="row" class="mono">
                  <a href={hrefOf({ show: 'client', id })}>{shown(node?.id || `stream ${id}`)}</a>
                </th>
                <td>{labels.get(of) ?? of}</td>
                <td class={colour}>{text}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {answer.clients.length === 0 && <p class="dim">Nobody is in it.</p>}
      {more > 0 && (
        <p>
          <a href={hrefOf({ wave: String(wave) }, '#clients')}>and {more.toLocaleString('en')} more</a>
        </p>
      )}
    </div>
  );
}
