import type { PageChart, PageModel, PageVerdict } from '../src/admin/page/model.ts';
import { Graph, rounded } from './charts.tsx';
import { Since, Until } from './time.tsx';

type Change = NonNullable<PageModel['change']>;

const colours: Readonly<Record<string, string>> = { GOOD: 'ok', BAD: 'bad', UNKNOWN: 'warn' };

/** The change that waits: through which wave it goes, for how long still, and who says what of it. */
export function ChangeThatWaits({ model: { change } }: { readonly model: PageModel }) {
  if (change === undefined) return null;
  const { state, since, what, ends, streams, accepted, rejected, verdicts } = change;
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
      <Waves change={change} />
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

function Waves({ change: { state, wave, waves } }: { readonly change: Change }) {
  const now = state === 'HELD' ? 'bad' : 'now';
  const steps = Array.from({ length: waves }, (_, index) => index + 1);
  return (
    <ol class="waves" aria-label="Waves">
      {steps.map((step) => (
        <li
          key={step}
          class={step < wave ? 'over' : step === wave ? now : ''}
          aria-current={step === wave ? 'step' : undefined}
        >
          wave {step}
          {step < wave && ', over'}
        </li>
      ))}
      <li>everybody</li>
    </ol>
  );
}
