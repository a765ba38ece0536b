import { tablesFor } from './matrix.ts';
import type { Attack } from './support/attack.ts';
import { describeAttacks } from './support/suite.ts';

/** All of them are in plain.more.ts. */
const everySecond = (attacks: readonly Attack[]): readonly Attack[] =>
  attacks.filter((_, at) => at % 2 === 0);

const tables = Object.entries(tablesFor('plain', ['xds', 'admin']));
describeAttacks(
  'attacks',
  { kind: 'plain' },
  Object.fromEntries(tables.map(([name, attacks]) => [name, everySecond(attacks)])),
);
