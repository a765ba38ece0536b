import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import { InMemoryRelay, namedHolder, resources, ScriptedUpstream, type } from '../support/in-memory-relay.ts';
import { checkConsistency } from './consistency-check.ts';

describe('cold cache and no upstream (§8)', () => {
  it('§8 nothing that the stream asks for is cached: UNAVAILABLE before any response', () => {
    const relay = new InMemoryRelay();
    relay.upstream.down = true;
    const client = relay.sotw();
    client.send('lds', { resourceNames: ['server'] });
    expect(client.received()).to.deep.equal([]);
    expect(client.status?.code).to.equal(14);
  });

  it('§8 a client that waits already hears of it when the round has failed', () => {
    const relay = new InMemoryRelay();
    const client = relay.sotw();
    client.send('lds', { resourceNames: ['server'] });
    expect(client.status).to.equal(undefined);
    relay.upstream.down = true;
    relay.relay.changed();
    expect(client.status?.code).to.equal(14);
  });

  it('§8 so does one with a type of which it asks for nothing', () => {
    const relay = new InMemoryRelay();
    relay.upstream.down = true;
    const client = relay.sotw();
    client.send('eds', { resourceNames: [] });
    expect(client.status, 'nothing is asked for').to.equal(undefined);
    client.send('lds');
    expect(client.status?.code).to.equal(14);
  });

  it('§8 as long as upstream may still answer it is waited for', () => {
    const relay = new InMemoryRelay();
    const client = relay.sotw();
    client.send('lds');
    relay.clock.advance(60_000);
    expect(client.status).to.equal(undefined);
  });

  it('§8 with something of it cached the stream lives', () => {
    const relay = new InMemoryRelay();
    checkConsistency(relay);
    relay.upstream.down = true;
    const client = relay.sotw();
    client.send('cds');
    client.send('lds');
    relay.relay.changed();
    expect(resources(client.one())).to.deep.equal({ a: '1' });
    expect(client.status).to.equal(undefined);
  });

  it('§8 what is known to be absent is known', () => {
    const relay = new InMemoryRelay();
    const first = relay.sotw();
    first.send('lds', { resourceNames: ['nowhere'] });
    relay.says({ type: type('lds'), holder: namedHolder });
    relay.upstream.down = true;
    const client = relay.sotw();
    client.send('lds', { resourceNames: ['nowhere'] });
    expect(client.one().resources).to.deep.equal([]);
  });

  it('§8 an outage ends no stream that has had a response, and takes nothing back', () => {
    const relay = new InMemoryRelay();
    const untouched = checkConsistency(relay);
    relay.upstream.down = true;
    relay.relay.changed();
    untouched();
  });
});

describe('§6.6 what files have, after a start', () => {
  /** A control plane, and files that are read until `isRead` is called. */
  function started() {
    const relay = new InMemoryRelay();
    const { promise, resolve: isRead } = Promise.withResolvers<void>();
    const begun: string[] = [];
    const plane = Object.assign(new ScriptedUpstream(), { start: () => void begun.push('plane') });
    const publishesAs = { key: 'files', upstream: 'script', role: 'wildcard' as const };
    const files = Object.assign(new ScriptedUpstream(), {
      publishesAs,
      claims: () => false,
      looking: promise,
      start: () => void begun.push('files'),
    });
    relay.relay.start([plane, files]);
    return { relay, begun, isRead };
  }

  it('is in the cache before another upstream answers a wildcard, which shows it too', async () => {
    const { begun, isRead } = started();
    await setImmediate();
    expect(begun).to.deep.equal(['files']);
    isRead();
    await setImmediate();
    expect(begun).to.deep.equal(['files', 'plane']);
  });

  it('is not waited for longer than 2 s, nor in the end', async () => {
    const [{ relay, begun }, other] = [started(), started()];
    relay.clock.advance(2000);
    await setImmediate();
    expect(begun).to.deep.equal(['files', 'plane']);
    await other.relay.relay.stop();
    other.relay.clock.advance(2000);
    await setImmediate();
    expect(other.begun).to.deep.equal(['files']);
  });
});
