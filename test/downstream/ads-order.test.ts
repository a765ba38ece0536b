import { expect } from 'chai';
import type { DiscoveryResponse } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { typeUrl } from '../../src/model/brand.ts';
import { typeInfo } from '../../src/model/types.ts';
import {
  InMemoryRelay,
  namedHolder,
  put,
  resources,
  type SotwClient,
  type,
} from '../support/in-memory-relay.ts';

/** A client that holds these resources, by type. */
function holding(relay: InMemoryRelay, held: Readonly<Record<string, Record<string, string>>>): SotwClient {
  const client = relay.sotw();
  for (const [short, state] of Object.entries(held)) {
    const wildcard = short === 'cds' || short === 'lds';
    client.send(short, { resourceNames: wildcard ? [] : Object.keys(state) });
    if (wildcard) relay.full(short, state);
    else names(relay, short, state);
    client.received();
  }
  return client;
}

function names(relay: InMemoryRelay, short: string, state: Readonly<Record<string, string>>): void {
  const puts = Object.entries(state).map(([name, content]) => put(type(short), name, content));
  relay.says({ type: type(short), holder: namedHolder, puts });
}

/** The client misses these updates, and then reads on. */
function missing(client: SotwClient, updates: () => void): string[] {
  client.blocked = true;
  client.lab.full('srds', { wakes: String(Math.random()) }); // one response is on its way
  updates();
  client.received();
  client.unblock();
  return client.received().map(line);
}

const line = (response: DiscoveryResponse): string =>
  `${typeInfo(typeUrl(response.typeUrl)).short} ${Object.entries(resources(response))
    .map((pair) => pair.join(':'))
    .toSorted()
    .join(' ')}`.trim();

/** Whatever happens first: a type of its own that blocks the client. */
function lab(held: Readonly<Record<string, Record<string, string>>>): {
  client: SotwClient;
  lab: InMemoryRelay;
} {
  const relay = new InMemoryRelay();
  const client = holding(relay, held);
  client.send('srds');
  relay.full('srds', {});
  client.received();
  return { client, lab: relay };
}

describe('order on ADS (§8)', () => {
  it('§8 CDS, EDS, LDS, RDS, whatever the order upstream', () => {
    const it = lab({ cds: { a: '1' }, eds: { x: '1' }, lds: { l: '1' }, rds: { r: '1' } });
    const told = missing(it.client, () => {
      names(it.lab, 'rds', { r: '2' });
      it.lab.full('lds', { l: '2' });
      names(it.lab, 'eds', { x: '2' });
      it.lab.full('cds', { a: '2' });
    });
    expect(told).to.deep.equal(['cds a:2', 'eds x:2', 'lds l:2', 'rds r:2']);
  });

  it('§6.4 a list collection of endpoints goes after EDS and before LDS', () => {
    const it = lab({ eds: { x: '1' }, lds: { l: '1' } });
    const url = typeUrl('type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection');
    const list = 'xdstp://a/envoy.config.endpoint.v3.LbEndpointCollection/x';
    it.client.send(url, { resourceNames: [list] });
    const says = (content: string): void => {
      it.lab.says({ type: url, holder: namedHolder, puts: [put(url, list, content)] });
    };
    says('1');
    it.client.received();
    const told = missing(it.client, () => {
      it.lab.full('lds', { l: '2' });
      says('2');
      names(it.lab, 'eds', { x: '2' });
    });
    expect(told).to.deep.equal(['eds x:2', `${url} ${list}:2`, 'lds l:2']);
  });

  it('§8 CDS lost a cluster while RDS is pending: the union, RDS, then CDS exactly', () => {
    const it = lab({ cds: { a: '1', b: '1' }, rds: { r: '1' } });
    const told = missing(it.client, () => {
      it.lab.full('cds', { b: '1', c: '1' });
      names(it.lab, 'rds', { r: '2' });
    });
    expect(told).to.deep.equal(['cds a:1 b:1 c:1', 'rds r:2', 'cds b:1 c:1']);
  });

  it('§8 a pure loss waits for what is pending', () => {
    const it = lab({ cds: { a: '1', b: '1' }, rds: { r: '1' } });
    const told = missing(it.client, () => {
      it.lab.full('cds', { b: '1' });
      names(it.lab, 'rds', { r: '2' });
    });
    expect(told).to.deep.equal(['rds r:2', 'cds b:1']);
  });

  it('§8 LDS and CDS lost resources: the unions, EDS, RDS, then LDS and CDS exactly', () => {
    const it = lab({ cds: { a: '1' }, eds: { x: '1' }, lds: { l: '1' }, rds: { r: '1' } });
    const told = missing(it.client, () => {
      it.lab.full('lds', { m: '1' });
      it.lab.full('cds', { b: '1' });
      names(it.lab, 'eds', { x: '2' });
      names(it.lab, 'rds', { r: '2' });
    });
    expect(told).to.deep.equal(['cds a:1 b:1', 'eds x:2', 'lds l:1 m:1', 'rds r:2', 'lds m:1', 'cds b:1']);
  });

  it('§8 with nothing else pending the exact state goes at once', () => {
    const it = lab({ cds: { a: '1', b: '1' }, rds: { r: '1' } });
    expect(missing(it.client, () => it.lab.full('cds', { c: '1' }))).to.deep.equal(['cds c:1']);
  });

  it('§8 a resource that comes back in the meantime is not lost', () => {
    const it = lab({ cds: { a: '1', b: '1' }, rds: { r: '1' } });
    const { client } = it;
    client.blocked = true;
    names(it.lab, 'rds', { r: '2' });
    it.lab.full('cds', { c: '1' });
    names(it.lab, 'rds', { r: '3' });
    client.received();
    client.unblock();
    expect(client.received().map(line)).to.deep.equal(['cds a:1 b:1 c:1', 'rds r:3', 'cds c:1']);
    client.blocked = true;
    names(it.lab, 'rds', { r: '4' });
    it.lab.full('cds', { d: '1' });
    names(it.lab, 'rds', { r: '5' });
    client.received();
    client.readOne();
    expect(client.received().map(line)).to.deep.equal(['cds c:1 d:1']);
    it.lab.full('cds', { c: '2', d: '1' });
    client.readOne();
    expect(client.received().map(line), 'CDS is new, and lost nothing').to.deep.equal(['cds c:2 d:1']);
    client.unblock();
    expect(client.received().map(line)).to.deep.equal(['rds r:5']);
  });

  it('§8 a loss that is kept back does not hold back that of another type', () => {
    const it = lab({ cds: { a: '1', b: '1' }, lds: { l: '1', m: '1' }, rds: { r: '1' } });
    const told = missing(it.client, () => {
      it.lab.full('cds', { a: '2' });
      it.lab.full('lds', { l: '2' });
    });
    expect(told).to.deep.equal(['cds a:2 b:1', 'lds l:2', 'cds a:2']);
  });

  it('§8 types that are not ready do not hold back the others', () => {
    const it = lab({ cds: { a: '1' }, rds: { r: '1' } });
    it.client.send('lds'); // upstream never answers
    const told = missing(it.client, () => {
      names(it.lab, 'rds', { r: '2' });
      it.lab.full('cds', { b: '1' });
    });
    expect(told).to.deep.equal(['cds a:1 b:1', 'rds r:2', 'cds b:1']);
  });

  it('§8 nothing is written to a client that does not read', () => {
    const it = lab({ cds: { a: '1' }, rds: { r: '1' } });
    it.client.blocked = true;
    names(it.lab, 'rds', { r: '2' });
    it.client.received();
    for (let version = 2; version < 20; version++) {
      it.lab.full('cds', { a: String(version) });
      names(it.lab, 'rds', { r: String(version) });
    }
    expect(it.client.inbox).to.deep.equal([]);
  });

  it('§3.10 the version of a union does not pass for that of what is visible (CONTENT)', () => {
    const relay = new InMemoryRelay({ contentVersions: true });
    const client = holding(relay, { cds: { a: '1', b: '1' }, rds: { r: '1' } });
    client.blocked = true;
    names(relay, 'rds', { r: '2' });
    relay.full('cds', { a: '2' }, '2');
    names(relay, 'rds', { r: '3' });
    client.received();
    client.readOne();
    const [union] = client.received();
    client.disconnect();
    const again = relay.sotw();
    again.send('cds', { versionInfo: union?.versionInfo ?? '' });
    expect(line(again.one())).to.equal('cds a:2');
  });
});
