import type { ClassProblem } from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { NearParameters } from '../model/nearest-parameters.ts';
import { shorten } from '../model/text.ts';

export const notAllowed = 'xds.authorization does not allow it';

type Why = Pick<ClassProblem, 'why' | 'nearest' | 'otherClasses'>;

/** `no variant matches; env=prod has one; 3 other classes have one`. */
export const missingText = ({ why, nearest, otherClasses }: Why): string =>
  `${why}${nearest === '' ? '' : `; ${nearest}`}${othersText(otherClasses)}`;

/** Of these parameters a text has at most so many characters. */
const longestChange = 60;

/** `env=prod has 12, env=test has 3`. `single`: they are of one name. `isCut`: there are more names than were looked at. */
export function nearestText(all: readonly NearParameters[], single: boolean, isCut: boolean): string {
  return all
    .map(({ changes, names }) => {
      const words = Array.from(changes, ([key, value]) =>
        shorten(value === undefined ? `no ${key}` : `${key}=${value}`, longestChange),
      );
      const count = single ? 'one' : `${isCut ? 'at least ' : ''}${names.toLocaleString('en')}`;
      return `${words.join(' and ')} has ${count}`;
    })
    .join(', ');
}

/** `; 3 other classes have one`; empty if no class has. */
export function othersText(classes: number): string {
  if (classes === 0) return '';
  return classes === 1 ? '; 1 other class has one' : `; ${classes} other classes have one`;
}
