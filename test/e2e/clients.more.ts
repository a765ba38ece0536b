import { expect } from 'chai';
import { clientsOfLongTest, clientsOfTest } from './support/clients.ts';
import { describeClients, header, isOf, table } from './support/compatibility.ts';

describe('clients that people have, through the relay', function () {
  this.timeout(180_000);
  describeClients(clientsOfTest);

  it('docs/compatibility.md has a row for each client that is tried, and no other', () => {
    const [first, ...rows] = table();
    expect(first).to.deep.equal(header);
    const all = [...clientsOfTest, ...clientsOfLongTest];
    expect(rows).to.have.length(all.length);
    for (const [at, kind] of all.entries())
      expect(isOf(rows[at] ?? [], kind), `row ${at + 1} is of ${kind.title}`).to.equal(true);
  });
});
