import { ResourceFiles } from '../e2e/support/files.ts';
import { controlPlanes, hostileFiles, rawPlanes } from './control-planes.ts';
import { HostilePlane, RawPlane } from './support/hostile-plane.ts';
import { describeAttacks } from './support/suite.ts';

describe('attacks by control planes', () => {
  let plane: HostilePlane;
  let raw: RawPlane;
  let files: ResourceFiles;

  before(async () => {
    plane = await HostilePlane.start();
    raw = await RawPlane.start();
    files = new ResourceFiles();
  });

  after(async () => {
    await plane?.[Symbol.asyncDispose]();
    await raw?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  const upstreams = () => {
    const backoff = { initial: '50ms', max: '200ms' };
    return [
      { name: 'hostile', types: ['rds'], ads: { endpoints: [plane.address], backoff } },
      { name: 'raw', types: ['rtds'], ads: { endpoints: [raw.address], backoff } },
      { ...files.upstream, name: 'hostile-files', types: ['ecds'] },
    ];
  };

  describeAttacks(
    'on a relay',
    { kind: 'plain', memoryAfter: 'attack', upstreams },
    {
      'its messages': controlPlanes(() => plane),
      'its frames': rawPlanes(() => raw),
      files: hostileFiles(() => files),
    },
  );
});
