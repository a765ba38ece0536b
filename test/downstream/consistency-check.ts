import { expect } from 'chai';
import { type InMemoryRelay, resources } from '../support/in-memory-relay.ts';

/** A client that other clients' mistakes must not touch. */
export function checkConsistency(relay: InMemoryRelay): () => void {
  const client = relay.sotw();
  client.send('cds');
  relay.full('cds', { a: '1' });
  client.one();
  return () => {
    relay.full('cds', { a: '2' });
    expect(resources(client.one())).to.deep.equal({ a: '2' });
    expect(client.status).to.equal(undefined);
  };
}
