interface PagesProps {
  readonly page: number;
  readonly pages: number;
  readonly href: (page: number) => string;
  /** What is paged, for whoever does not see where this stands. */
  readonly what: string;
}

export function Pages({ page, pages, href, what }: PagesProps) {
  if (pages <= 1) return null;
  return (
    <nav class="pages" aria-label={`Pages of ${what}`}>
      {page > 1 ? <a href={href(page - 1)}>← previous</a> : <span class="dim">← previous</span>}
      <span>
        page {page.toLocaleString('en')} of {pages.toLocaleString('en')}
      </span>
      {page < pages ? <a href={href(page + 1)}>next →</a> : <span class="dim">next →</span>}
    </nav>
  );
}
