import { tablesFor } from './matrix.ts';
import { describeAttacks } from './support/suite.ts';

describeAttacks('attacks', { kind: 'plain' }, tablesFor('plain', ['xds', 'admin']));
