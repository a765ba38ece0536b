import { admin } from './admin.ts';
import { frames } from './frames.ts';
import { grpc } from './grpc.ts';
import { hpack } from './hpack.ts';
import { status } from './status.ts';
import { describeAttacks } from './support/suite.ts';
import { xds } from './xds.ts';

describeAttacks('attacks', { kind: 'plain' }, { frames, hpack, grpc, xds, status, admin });
