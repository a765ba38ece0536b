import type { SQLOutputValue } from 'node:sqlite';
import { corrupt } from './disk-error.ts';

export type Columns = Record<string, SQLOutputValue>;

/** A column that must be there and of its type: what else it is shows that the file is not what was written. */
export function textOf(columns: Columns | undefined, column: string): string {
  const value = columns?.[column];
  if (typeof value !== 'string') throw corrupt(`column ${column} is no text`);
  return value;
}

export function numberOf(columns: Columns | undefined, column: string): number {
  const value = columns?.[column];
  if (typeof value !== 'number') throw corrupt(`column ${column} is no number`);
  return value;
}

export function bytesOf(columns: Columns | undefined, column: string): Uint8Array {
  const value = columns?.[column];
  if (!(value instanceof Uint8Array)) throw corrupt(`column ${column} is no blob`);
  return value;
}
