import { frames } from './frames.ts';
import { hpack } from './hpack.ts';
import { describeAttacks } from './support/suite.ts';

describeAttacks('attacks through mutual TLS', { kind: 'TLS' }, { frames, hpack });
