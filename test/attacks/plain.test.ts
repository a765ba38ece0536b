import { frames } from './frames.ts';
import { hpack } from './hpack.ts';
import { describeAttacks } from './support/suite.ts';

describeAttacks('attacks', { kind: 'plain' }, { frames, hpack });
