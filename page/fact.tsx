import type { ComponentChildren } from 'preact';

/** A name and what is known of it, in a list of definitions. */
export function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
