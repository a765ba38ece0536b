import { frames } from './frames.ts';
import { grpc } from './grpc.ts';
import { rest } from './rest.ts';
import { describeAttacks } from './support/suite.ts';
import { tls } from './tls.ts';

describeAttacks('attacks through mutual TLS', { kind: 'TLS' }, { frames, grpc, rest, tls });
