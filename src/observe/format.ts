import type { Change } from '../gen/distributary/admin/v1/changes_pb.ts';
import type { CanaryCounts } from '../gen/distributary/admin/v1/rollout_pb.ts';
import { counted } from '../model/text.ts';

/** 1536 → `1.5 KiB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit] ?? ''}`;
}

/** `count`: in so many seconds. */
export const perSecond = (count: number, seconds: number): string =>
  (count / Math.max(1, seconds)).toFixed(1);

/** Of requests that some failed of; a dash where there was none. */
export function errorShare(errors: number, requests: number): string {
  if (requests === 0) return '–';
  return errors === 0 ? '0 %' : `${((errors / requests) * 100).toFixed(1)} %`;
}

/** The two largest units: `3 d 4 h`, `12 min 5 s`. */
export function formatSeconds(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const parts: readonly (readonly [number, string])[] = [
    [Math.floor(whole / 86_400), 'd'],
    [Math.floor(whole / 3600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return '0 s';
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(' ');
}

/** How long before `now` (milliseconds) an RFC 3339 time was; undefined where it is none. */
export function ago(time: string, now: number): string | undefined {
  const then = Date.parse(time);
  return Number.isNaN(then) ? undefined : formatSeconds((now - then) / 1000);
}

/** Where a change is or went: `CANARY in wave 2 of 3`, `RELEASED after 3 waves`, `DISCARDED in wave 1: traffic`. */
export function verdictText(change: Pick<Change, 'verdict' | 'state' | 'wave' | 'waves' | 'cause'>): string {
  const { verdict, state = verdict, wave = 0, waves = 0, cause = '' } = change;
  const ended = verdict === 'DISCARDED' || state === 'HELD';
  const why = ended && cause !== '' ? `: ${cause}` : '';
  if (waves < 2) return `${state}${why}`;
  if (verdict === 'RELEASED' && wave === waves) return `${state} after ${waves} waves`;
  return `${state} in wave ${wave}${verdict === 'DISCARDED' ? '' : ` of ${waves}`}${why}`;
}

/** What canaries say to the change that a status is about. While it is frozen nobody asks them. */
export function canariesText(
  state: string,
  canaries: Pick<CanaryCounts, 'total' | 'accepted' | 'rejected' | 'ended'> | undefined,
): string {
  if (state === 'FROZEN') return 'not asked while it is frozen: they keep what they have';
  const { total = 0, accepted = 0, rejected = 0, ended = 0 } = canaries ?? {};
  return `${counted(total, 'stream')}; ${accepted} accepted, ${rejected} rejected, ${ended} disconnected`;
}

/** Characters that are kept of a text from a client, which may be as long as a request. */
export const longestText = 4096;
