import { describeAttacks } from './support/suite.ts';
import { tables } from './tables.ts';

const { tls: _, ...withoutTls } = tables;

describeAttacks('attacks', { kind: 'plain', memoryAfterEach: true }, withoutTls);
