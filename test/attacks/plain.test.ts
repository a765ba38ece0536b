import { describeAttacks } from './support/suite.ts';
import { tables } from './tables.ts';

const { tls: _tls, rest: _rest, ...others } = tables;

describeAttacks('attacks', { kind: 'plain', memoryAfterEach: true }, others);
