import { frames } from './frames.ts';
import { hpack } from './hpack.ts';
import { rest } from './rest.ts';
import { Arena, type Attack } from './support/attack.ts';
import { restOf } from './support/rest-calls.ts';
import { describeAttacks } from './support/suite.ts';

/** The same bytes, to the other port. */
const onRestPort = ({ name, run }: Attack): Attack => ({
  name,
  needs: ['REST'],
  run: (arena) => run(arena.use(new Arena(restOf(arena.target)))),
});

describeAttacks(
  'attacks on the REST port',
  { kind: 'plain', memoryAfterEach: true },
  {
    frames: frames.map(onRestPort),
    hpack: hpack.map(onRestPort),
    rest: rest.filter(({ needs }) => needs?.length === 1),
  },
);
