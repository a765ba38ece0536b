import { tablesFor } from './matrix.ts';
import { describeAttacks } from './support/suite.ts';

describeAttacks(
  'attacks on the REST port',
  { kind: 'plain', memoryAfterEach: true },
  tablesFor('plain', ['rest']),
);
