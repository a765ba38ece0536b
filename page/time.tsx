import { useEffect, useState } from 'preact/hooks';
import { formatSeconds } from '../src/observe/format.ts';

/** The time, each second. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') setNow(Date.now());
    }, 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** The exact time is its title. */
function Time({ at, text }: { readonly at: number; readonly text: string }) {
  const date = new Date(at);
  return (
    <time dateTime={date.toISOString()} title={date.toLocaleString()}>
      {text}
    </time>
  );
}

/** How long ago: it counts by itself. */
export function Since({ at }: { readonly at: number }) {
  return <Time at={at} text={formatSeconds((useNow() - at) / 1000)} />;
}

/** How long until then. */
export function Until({ at }: { readonly at: number }) {
  const now = useNow();
  return <Time at={at} text={now >= at ? 'now' : `in ${formatSeconds((at - now) / 1000)}`} />;
}

/** The clock of the day, and the day where it is another one. */
export function Moment({ at }: { readonly at: number }) {
  const date = new Date(at);
  const isToday = date.toDateString() === new Date().toDateString();
  return <Time at={at} text={isToday ? date.toLocaleTimeString() : date.toLocaleString()} />;
}
