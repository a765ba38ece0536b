import type { ComponentChildren } from 'preact';

interface TableProps {
  /** The id of its heading. */
  readonly labelledBy: string;
  /** For whoever does not see where it stands. */
  readonly caption: string;
  readonly columns: readonly ComponentChildren[];
  readonly class?: string;
  /** Its rows. */
  readonly children: ComponentChildren;
}

/** A table that is wider than the page scrolls by itself. */
export function Table({ labelledBy, caption, columns, class: style, children }: TableProps) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-labelledby={labelledBy}>
      <table class={style}>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column, index) => (
              <th key={index} scope="col">
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
