import { expect } from 'chai';
import { type Lab, resources } from '../support/lab.ts';

/** A client that other clients' mistakes must not touch. */
export function witness(lab: Lab): () => void {
  const client = lab.sotw();
  client.send('cds');
  lab.full('cds', { a: '1' });
  client.one();
  return () => {
    lab.full('cds', { a: '2' });
    expect(resources(client.one())).to.deep.equal({ a: '2' });
    expect(client.status).to.equal(undefined);
  };
}
