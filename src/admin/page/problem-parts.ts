import type { StatusResponse } from '../../gen/distributary/admin/v1/admin_pb.ts';
import type { ListClassesResponse } from '../../gen/distributary/admin/v1/fleet_pb.ts';
import { contentHash } from '../../model/content-hash.ts';
import type { PageFacts } from '../page-ports.ts';
import type { Plain } from '../plain.ts';
import type { Problem } from './model.ts';

export interface ProblemInputs {
  readonly status: Plain<StatusResponse>;
  readonly classes: Plain<ListClassesResponse>;
  readonly facts: PageFacts;
  readonly now: number;
}

/** A browser and the relay take it as a URL. */
const longestLink = 1000;

const noProblem: Problem = {
  id: '',
  severity: 'warn',
  title: '',
  detail: '',
  short: '',
  since: 0,
  until: 0,
  command: '',
  runbook: '',
  link: '',
  linkText: '',
};

export function millisecondsOf(time: string): number {
  const at = Date.parse(time);
  return Number.isNaN(at) ? 0 : at;
}

/** A problem of which only what is known has to be said. */
export function problem(known: Partial<Problem> & Pick<Problem, 'id' | 'title'>): Problem {
  const all = { ...noProblem, ...known };
  // Both may hold names, which may have kilobytes.
  return {
    ...all,
    id: contentHash(all.id),
    ...(all.link.length > longestLink ? { link: '', linkText: '' } : {}),
  };
}

/** `1 client`, `4,812 clients`. */
export function counted(count: number, noun: string): string {
  return `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
}
