import { styleText } from 'node:util';
import type { VariantSummary } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { WaitResponse } from '../gen/distributary/admin/v1/delivery_pb.ts';
import { printable } from '../model/text.ts';
import type { Column, Paint, View } from '../observe/text-table.ts';

/** Where a command writes, and its environment: the process's, or a test's. */
export interface Terminal {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Of `out`; left out: it is a file or a pipe. */
  readonly screen?:
    | {
        readonly colours: boolean;
        /** Its size, called each time. */
        readonly rows: () => number;
        readonly columns: () => number;
      }
    | undefined;
}

export const processTerminal: Terminal = {
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  environment: process.env,
  screen: process.stdout.isTTY
    ? {
        colours: process.stdout.hasColors(),
        rows: () => process.stdout.rows,
        columns: () => process.stdout.columns,
      }
    : undefined,
};

/** As wide as the terminal; 80 for a file, unless COLUMNS is exported. */
export const columnsOf = ({ screen, environment }: Terminal): number =>
  Math.max(40, screen?.columns() ?? (Number(environment['COLUMNS']) || 80));

export function viewOf(terminal: Terminal, wide: boolean): View {
  const isBound = terminal.screen !== undefined || terminal.environment['COLUMNS'] !== undefined;
  return {
    paint: painter(terminal),
    wide,
    columns: wide || !isBound ? Number.POSITIVE_INFINITY : columnsOf(terminal),
  };
}

/** Colours are for terminals that have them: not for files and pipes, and not with NO_COLOR. */
function painter({ screen }: Terminal): Paint {
  if (screen?.colours !== true) return (_, text) => text;
  return (style, text) => styleText(style, text, { validateStream: false });
}

/** Of a variant, in every list of them. */
export const variantColumns = [
  'constraints',
  ['VERSION', 'content'],
  ['UPSTREAM VERSION', 'version'],
  ['BYTES', 'bytes', 'wide'],
  ['SINCE', 'since', 'wide'],
  ['UPSTREAM', 'upstream', 'wide'],
] as const satisfies readonly Column<VariantSummary>[];

/** `, version 5e1f…, v7 at the control plane`: what of it there is. */
export function versionText({ content, version }: Pick<VariantSummary, 'content' | 'version'>): string {
  const own = content === '' ? '' : `, version ${content}`;
  return version === '' ? own : `${own}, ${printable(version)} at the control plane`;
}

/** What an answer says is as of then. */
export const staleLines = ({ staleUpstreams }: Pick<WaitResponse, 'staleUpstreams'>): readonly string[] =>
  staleUpstreams.map(({ name, since, reason, connected }) =>
    printable(
      `as of ${since}: upstream ${name} ${connected ? 'may be out of date' : 'is away'} since then: ${reason}`,
    ),
  );

/** Waits for the first of these signals. A second one ends the process at once, because the handlers are gone by then. */
export function firstSignal(...signals: readonly NodeJS.Signals[]) {
  const { promise, resolve } = Promise.withResolvers<NodeJS.Signals>();
  const over = new AbortController();
  const release = (): void => {
    for (const signal of signals) process.off(signal, caught);
    over.abort();
  };
  const caught = (signal: NodeJS.Signals): void => {
    release();
    resolve(signal);
  };
  for (const signal of signals) process.on(signal, caught);
  return {
    promise,
    /** Aborts when it has come, and when nobody waits any more. */
    signal: over.signal,
    /** Stops waiting. */
    release,
  };
}
