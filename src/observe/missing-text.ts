import type { ClassProblem } from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { NearParameters } from '../model/nearest-parameters.ts';
import { counted, printable, shorten } from '../model/text.ts';
import { parametersLabel } from './problems.ts';

export const notAllowed = 'xds.authorization does not allow it';

type Missing = Pick<ClassProblem, 'type' | 'name' | 'parameters' | 'clients'>;
type Why = Pick<ClassProblem, 'why' | 'nearest' | 'otherClasses'>;

/** `1 client with env=prd gets no rds web: no variant matches; env=prod has one; 3 other classes have one`. */
export function missingSentence({ type, name, parameters, clients, ...why }: Missing & Why): string {
  const who = `${counted(clients, 'client')} with ${shorten(parametersLabel(parameters), 120)}`;
  const verb = clients === 1 ? 'gets' : 'get';
  return printable(`${who} ${verb} no ${shorten(`${type} ${name}`, 200)}: ${missingText(why)}`);
}

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
