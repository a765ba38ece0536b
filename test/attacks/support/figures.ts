import { readdirSync } from 'node:fs';
import { get } from '../../e2e/support/http.ts';
import type { Target } from './target.ts';

/** What an attack must leave as it was. NaN: not told. */
export interface Figures {
  /** Open xDS streams. */
  readonly streams: number;
  readonly connections: number;
  /** Open files of the relay's processes, where they run on this machine. */
  readonly files: number;
  /** Bytes that the relay holds: heap and buffers. */
  readonly memory: number;
}

export interface FiguresOptions {
  /** Bytes after a garbage collection. Left out: what /metrics says, garbage included. */
  readonly memory?: () => Promise<number>;
}

/** By /metrics of the target's admin listener. */
export async function figuresOf(target: Target, options: FiguresOptions): Promise<Figures> {
  const { admin, pids } = target;
  const text = admin === undefined ? '' : (await get(`${admin}/metrics`)).body;
  const bytes =
    (await options.memory?.()) ?? sum(text, 'nodejs_heap_size_used_bytes', 'nodejs_external_memory_bytes');
  return {
    // There is no sample where there is no stream.
    streams: admin === undefined ? Number.NaN : sum(text, 'distributary_downstream_streams') || 0,
    connections: sum(text, 'distributary_downstream_connections'),
    files: pids === undefined ? Number.NaN : pids.reduce((all, pid) => all + openFiles(pid), 0),
    memory: bytes,
  };
}

/** Of all samples of these metrics; NaN without any. */
function sum(text: string, ...names: readonly string[]): number {
  const values = text
    .split('\n')
    .filter((line) => names.some((name) => line.startsWith(`${name}{`) || line.startsWith(`${name} `)))
    .map((line) => Number(line.slice(line.lastIndexOf(' ') + 1)));
  return values.length === 0 ? Number.NaN : values.reduce((all, value) => all + value, 0);
}

function openFiles(pid: number): number {
  try {
    return readdirSync(`/proc/${pid}/fd`).length;
  } catch {
    return Number.NaN;
  }
}
