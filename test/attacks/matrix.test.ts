import { expect } from 'chai';
import { cells, doors, tablesFor } from './matrix.ts';
import { tables } from './tables.ts';

describe('the matrix of attacks', () => {
  it('has every table on every door, or says why not', () => {
    const list = cells.map(({ table, door, not }) => {
      const cell = `${table}, ${door.kind} ${door.port}`;
      return `${cell.padEnd(24)}${not ?? 'runs'}`;
    });
    process.stdout.write(`${list.join('\n')}\n`);
    expect(cells.length).to.equal(doors.length * Object.keys(tables).length);
    for (const table of Object.keys(tables)) {
      expect(cells.some((cell) => cell.table === table && cell.not === undefined)).to.equal(true, table);
    }
    for (const { kind } of doors) {
      for (const attacks of Object.values(tablesFor(kind, ['xds', 'rest', 'admin']))) {
        expect(attacks).not.to.have.length(0);
      }
    }
  });
});
