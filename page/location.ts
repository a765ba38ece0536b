import { useEffect, useLayoutEffect, useState } from 'preact/hooks';

/** What the page shows is in its URL: a link to it shows the same. */
export type Query = Readonly<Record<string, string>>;

const changed = new Set<() => void>();
/** Where to go once it is drawn: the id of an element, or empty for the top. */
let target: string | undefined;

function read(): Query {
  return Object.fromEntries(new URLSearchParams(location.search));
}

export function useQuery(): Query {
  const [query, setQuery] = useState(read);
  useEffect(() => {
    const update = (): void => setQuery(read());
    changed.add(update);
    addEventListener('popstate', update);
    return () => {
      changed.delete(update);
      removeEventListener('popstate', update);
    };
  }, []);
  useLayoutEffect(() => {
    if (target === undefined) return;
    const element = target === '' ? null : document.getElementById(target);
    target = undefined;
    if (element !== null) element.scrollIntoView({ block: 'start' });
    else scrollTo({ top: 0 });
  }, [query]);
  return query;
}

/** Without what is empty. */
export function hrefOf(query: Query, anchor = ''): string {
  const entries = Object.entries(query).filter(([, value]) => value !== '');
  const search = new URLSearchParams(entries).toString();
  return `${search === '' ? location.pathname : `?${search}`}${anchor}`;
}

/** `replace`: without a step to go back to, as while somebody types. */
export function go(href: string, replace = false): void {
  const url = new URL(href, location.href);
  if (replace) history.replaceState(null, '', url);
  else history.pushState(null, '', url);
  if (!replace) target = url.hash.slice(1);
  for (const update of changed) update();
}

/** Links within the page load nothing: the state that is shown stays, and the event stream too. */
export function followLinks(): void {
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey)
      return;
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    const href = link?.getAttribute('href');
    if (href === null || href === undefined || !(href.startsWith('?') || href === location.pathname)) return;
    event.preventDefault();
    go(href);
  });
}
