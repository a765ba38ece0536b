import { tablesFor } from './matrix.ts';
import { describeAttacks } from './support/suite.ts';

describeAttacks(
  'attacks, and what each leaves behind',
  { kind: 'plain', memoryAfter: 'attack' },
  tablesFor('plain', ['xds', 'admin']),
);
