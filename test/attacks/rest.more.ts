import { tablesFor } from './matrix.ts';
import { describeAttacks } from './support/suite.ts';

describeAttacks(
  'attacks on the REST port',
  { kind: 'plain', memoryAfter: 'attack' },
  tablesFor('plain', ['rest']),
);
