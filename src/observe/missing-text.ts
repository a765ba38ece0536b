import { counted, printable, shorten } from '../model/text.ts';
import { WILDCARD } from '../model/transaction.ts';
import { parametersLabel } from './problems.ts';

interface Missing {
  readonly type: string;
  /** `*` is the wildcard. */
  readonly name: string;
  readonly parameters: Readonly<Record<string, string>>;
  readonly clients: number;
  readonly why: string;
  readonly otherClasses: number;
}

/** `1 client with env=prd gets no rds web: no variant matches; 3 other classes have one`. */
export function missingSentence({ type, name, parameters, clients, why, otherClasses }: Missing): string {
  const who = `${counted(clients, 'client')} with ${shorten(parametersLabel(parameters), 120)}`;
  const what = name === WILDCARD ? type : `${type} ${name}`;
  const verb = clients === 1 ? 'gets' : 'get';
  return printable(`${who} ${verb} no ${shorten(what, 200)}: ${why}${othersText(otherClasses)}`);
}

/** `; 3 other classes have one`; empty if no class has. */
export function othersText(classes: number): string {
  if (classes === 0) return '';
  return classes === 1 ? '; 1 other class has one' : `; ${classes} other classes have one`;
}
