import { expect } from 'chai';
import { diskError } from '../../../src/cache/persistence/records.ts';

describe('an error of the disk', () => {
  it('has the same kind, whether SQLite or the file system says it', () => {
    const sqlite = (errcode: number) => Object.assign(new Error('no'), { errcode });
    const system = (code: string) => Object.assign(new Error('no'), { code });
    const kinds = [sqlite(13), system('ENOSPC'), sqlite(8), system('EROFS'), system('EIO')];
    expect(kinds.map((error) => diskError(error).kind)).to.deep.equal([
      'full',
      'full',
      'read_only',
      'read_only',
      'io',
    ]);
  });
});
