import type { PageModel } from '../src/admin/page/model.ts';
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
          {verdicts.map(({ of, state: said, reason }) => (
            <li key={of}>
              <span class={colours[said]}>{said}</span> <strong>{of}</strong>{' '}
              <span class="dim">{reason}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
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
