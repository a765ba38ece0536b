import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { compileAuthorization } from '../../src/security/authorization.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import type { Peer } from '../../src/wire/server-stream.ts';
import { namePatterns } from '../security/name-patterns.ts';
import { contentOf, InMemoryRelay, namedHolder, put, resources, type } from '../support/in-memory-relay.ts';

const edsPath = '/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints';

describe('authorization', () => {
  const only = (names: readonly string[], types = [type('eds')]) => ({
    access: (peer: Peer) =>
      compileAuthorization([
        { principals: undefined, types, names: namePatterns(names), allow: true },
      ]).accessOf(peer),
  });

  it('a client that may see nothing at all: PERMISSION_DENIED on ADS', () => {
    const relay = new InMemoryRelay({
      access: (peer) =>
        compileAuthorization([
          { principals: ['spiffe://nobody'], types: undefined, names: undefined, allow: true },
        ]).accessOf(peer),
    });
    const client = relay.sotw();
    client.send('cds');
    expect(client.status?.code).to.equal(7);
    expect(relay.upstream.journal).to.deep.equal([]);
  });

  it('a type that it may not see: PERMISSION_DENIED on the type’s own service', () => {
    const relay = new InMemoryRelay(only(['x']));
    const client = relay.sotw('/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets');
    client.send('sds', { resourceNames: ['key'] });
    expect(client.status?.code).to.equal(7);
    expect(relay.upstream.journal).to.deep.equal([]);
  });

  it('names of which it may see none: PERMISSION_DENIED on the type’s own service', () => {
    const relay = new InMemoryRelay(only(['x*']));
    const client = relay.sotw(edsPath);
    client.send('eds', { resourceNames: ['y', 'z'] });
    expect(client.status?.code).to.equal(7);
    expect(relay.upstream.journal).to.deep.equal([]);
  });

  it('names of which it may see some: the others are left out', () => {
    const relay = new InMemoryRelay(only(['x*']));
    const client = relay.sotw(edsPath);
    client.send('eds', { resourceNames: ['x', 'y'] });
    const puts = ['x', 'y'].map((name) => put(type('eds'), name, '1'));
    relay.says({ type: type('eds'), holder: namedHolder, puts });
    expect(resources(client.one())).to.deep.equal({ x: '1' });
    expect(client.status).to.equal(undefined);
  });

  it('on ADS another type than it may see is left out, and the stream lives', () => {
    const relay = new InMemoryRelay(only(['x']));
    const client = relay.sotw();
    client.send('sds', { resourceNames: ['key'] });
    relay.says({ type: type('sds'), holder: namedHolder, puts: [put(type('sds'), 'key', '1')] });
    expect(client.received()).to.deep.equal([]);
    expect(client.status).to.equal(undefined);
  });

  it('a wildcard shows what may be seen, and nothing if nothing may', () => {
    const relay = new InMemoryRelay(only(['x*', 'shared'], [type('cds')]));
    const client = relay.sotw();
    client.send('cds');
    client.send('lds');
    relay.full('cds', { x1: '1', y1: '1', shared: '1' });
    relay.full('lds', { x1: '1' });
    expect(client.received().map(resources)).to.deep.equal([{ x1: '1', shared: '1' }, {}]);
  });

  it('what it may not see is not asked for upstream', () => {
    const relay = new InMemoryRelay(only(['x']));
    relay.sotw().send('eds', { resourceNames: ['x', 'y'] });
    expect(relay.upstream.journal).to.deep.equal(['+eds x']);
  });

  it('rules that are read again, and say the same: updates go on', () => {
    const relay = new InMemoryRelay(only(['x']));
    const client = relay.sotw();
    client.send('eds', { resourceNames: ['x'] });
    relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'x', '1')] });
    expect(resources(client.one())).to.deep.equal({ x: '1' });
    relay.relay.server.reidentify();
    relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'x', '2')] });
    expect(resources(client.one())).to.deep.equal({ x: '2' });
  });

  describe('a resource with aliases', () => {
    const vhds = type('vhds');
    const resource = (name: string, ...aliases: string[]) => put(vhds, name, name, { aliases });

    for (const [what, allowed, asked, given, expected] of [
      ['is had by an alias', ['r/*'], 'r/a', [resource('r/x', 'r/a')], { 'r/x': 'r/x' }],
      ['whose name is denied is not', ['r/a'], 'r/a', [resource('r/x', 'r/a')], {}],
      ['of which another alias is denied is not', ['r/a', 'r/x'], 'r/a', [resource('r/x', 'r/a', 's/b')], {}],
      ['of which an alias is denied is not had by its name', ['r/x'], 'r/x', [resource('r/x', 'r/a')], {}],
      ['is not a member of a wildcard, either', ['r/x'], '*', [resource('r/x', 'r/a')], {}],
      [
        'that is denied is as if it did not exist for one that is not',
        ['r/a', 'r/y'],
        'r/a',
        [resource('r/x', 'r/a'), resource('r/y', 'r/a')],
        { 'r/y': 'r/y' },
      ],
    ] as const) {
      it(what, () => {
        const relay = new InMemoryRelay(only(allowed, [vhds]));
        const client = relay.delta();
        client.send('vhds', { resourceNamesSubscribe: [asked] });
        relay.says({ type: vhds, puts: [...given], complete: true });
        const bodies = client
          .received()
          .flatMap((response) => response.resources)
          .filter(({ resource: body }) => body !== undefined)
          .map(({ name, resource: body }) => [name, contentOf(body)]);
        expect(Object.fromEntries(bodies)).to.deep.equal(expected);
      });
    }

    it('that gets a denied alias is taken away', () => {
      const relay = new InMemoryRelay(only(['r/x', 'r/a'], [vhds]));
      const client = relay.delta();
      client.send('vhds', { resourceNamesSubscribe: ['*'] });
      relay.says({ type: vhds, puts: [resource('r/x', 'r/a')], complete: true });
      expect(resources(client.one())).to.deep.equal({ 'r/x': 'r/x' });
      relay.says({ type: vhds, puts: [resource('r/x', 'r/a', 's/b')], complete: true });
      expect(client.one().removedResources).to.deep.equal(['r/x']);
    });

    it('that is denied: nor is what is said of it', () => {
      const relay = new InMemoryRelay(only(['r/x'], [vhds]));
      const client = relay.delta();
      client.send('vhds', { resourceNamesSubscribe: ['r/x'] });
      relay.says({ type: vhds, puts: [resource('r/x', 's/b')], complete: true });
      client.received();
      const said = { code: 14, message: 'overloaded', status: encodeStatus(14, 'overloaded') };
      relay.says({
        type: vhds,
        resourceErrors: [{ name: resourceName('r/x'), constraints: UNCONSTRAINED, ...said }],
      });
      expect(client.received()).to.deep.equal([]);
    });
  });

  it('what may not be seen any more is not sent again while removals wait for other types', () => {
    let names = ['*'];
    const relay = new InMemoryRelay({
      access: (peer) =>
        compileAuthorization([
          { principals: undefined, types: undefined, names: namePatterns(names), allow: true },
        ]).accessOf(peer),
    });
    const client = relay.sotw();
    client.send('cds');
    client.send('eds', { resourceNames: ['x', 'z'] });
    relay.full('cds', { x: '1', y: '1' });
    relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'x', '1')] });
    expect(client.received().map(resources)).to.deep.equal([{ x: '1', y: '1' }, { x: '1' }]);
    client.blocked = true;
    relay.says({ type: type('lds'), puts: [], complete: true });
    relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'x', '2')] });
    client.received();
    relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'x', '3')] });
    names = ['x*'];
    relay.relay.server.reidentify();
    client.unblock();
    expect(client.received().map(resources)).to.deep.equal([{ x: '1' }, { x: '3' }]);
  });
});
