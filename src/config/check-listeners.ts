import type { z } from 'zod';
import { formatHostPort } from '../wire/address.ts';
import { read, readText } from './schema-parts.ts';

const listeners = ['xds', 'rest', 'admin', 'metrics'] as const;

interface Bound {
  readonly listener: string;
  readonly host: string;
  readonly port: number;
}

/** They listen on every address of the machine. */
export const everywhere: ReadonlySet<string> = new Set(['0.0.0.0', '::']);

/** Two listeners on one address: the second could not start. */
export function checkListeners(file: unknown, context: z.core.$RefinementCtx): void {
  const known: Bound[] = [];
  for (const listener of listeners) {
    const address = read(read(file, listener), 'address');
    const [host, port] = [readText(address, 'host'), read(address, 'port')];
    if (host === undefined || typeof port !== 'number' || port === 0) continue;
    const taken = known.find(
      (one) => one.port === port && (one.host === host || everywhere.has(one.host) || everywhere.has(host)),
    );
    if (taken !== undefined) {
      const message = `${formatHostPort(host, port)} is already used by ${taken.listener}.address (${formatHostPort(taken.host, taken.port)}): each listener needs its own port`;
      context.addIssue({ code: 'custom', path: [listener, 'address'], message });
    }
    known.push({ listener, host, port });
  }
}
