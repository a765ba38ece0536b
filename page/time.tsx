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

/** How long ago: it counts by itself. The exact time is its title. */
export function Since({ at }: { readonly at: number }) {
  const now = useNow();
  return (
    <time dateTime={new Date(at).toISOString()} title={new Date(at).toLocaleString()}>
      {formatSeconds((now - at) / 1000)}
    </time>
  );
}

/** How long until then. */
export function Until({ at }: { readonly at: number }) {
  const now = useNow();
  return (
    <time dateTime={new Date(at).toISOString()} title={new Date(at).toLocaleString()}>
      {now >= at ? 'now' : `in ${formatSeconds((at - now) / 1000)}`}
    </time>
  );
}

/** The clock of the day, and the day where it is another one. */
export function Moment({ at }: { readonly at: number }) {
  const date = new Date(at);
  const isToday = date.toDateString() === new Date().toDateString();
  return (
    <time dateTime={date.toISOString()} title={date.toLocaleString()}>
      {isToday ? date.toLocaleTimeString() : date.toLocaleString()}
    </time>
  );
}
