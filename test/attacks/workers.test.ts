import { frames } from './frames.ts';
import { hpack } from './hpack.ts';
import { describeAttacks } from './support/suite.ts';

describeAttacks('attacks with workers: 2', { kind: 'workers' }, { frames, hpack });
