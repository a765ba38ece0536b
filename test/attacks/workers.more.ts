import { tablesFor } from './matrix.ts';
import { describeAttacks } from './support/suite.ts';

describeAttacks(
  'attacks with workers: 2',
  { kind: 'workers' },
  tablesFor('workers', ['xds', 'rest', 'admin']),
);
