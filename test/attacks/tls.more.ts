import { tablesFor } from './matrix.ts';
import { describeAttacks } from './support/suite.ts';

describeAttacks('attacks through mutual TLS', { kind: 'TLS' }, tablesFor('TLS', ['xds', 'rest']));
