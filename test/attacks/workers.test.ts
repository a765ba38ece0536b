import { frames } from './frames.ts';
import { grpc } from './grpc.ts';
import { rest } from './rest.ts';
import { describeAttacks } from './support/suite.ts';

describeAttacks(
  'attacks with workers: 2',
  { kind: 'workers' },
  { frames, grpc, rest: rest.filter(({ needs }) => needs?.length === 1) },
);
