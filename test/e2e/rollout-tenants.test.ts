import { setTimeout as sleep } from 'node:timers/promises';
import { credentials } from '@grpc/grpc-js';
import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { always, eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { PemFiles } from './support/pem-files.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { operate, reaches, rolloutOf } from './support/rollout-state.ts';

/** The tenant of a client is the beginning of its node's id. */
const config = (plane: ModelPlane, rollout: object, more: object = {}): RelayConfig => ({
  upstreams: [
    { name: 'central', ads: { endpoints: [plane.address], backoff: { initial: '20ms', max: '100ms' } } },
  ],
  parameters: [{ key: 'team', from: 'node.id', pattern: '^([a-z]+)' }],
  rollout: { canary: { percent: 0.01 }, bake: '1s', ...rollout },
  ...more,
});

const rejectsBad: RecordingClient['rejects'] = ({ resources }) =>
  [...resources.values()].includes('bad') ? 'no such filter' : undefined;

const heard = (client: RecordingClient, content: string): boolean =>
  client.said.some(({ resources }) => [...resources.values()].includes(content));

async function subscribed(pool: ClientPool, id: string, name: string): Promise<RecordingClient> {
  const client = pool.open('delta', id);
  client.rejects = rejectsBad;
  client.subscribe('cds', [name]);
  await client.gets('cds', { [name]: '1' });
  return client;
}

for (const workers of cases(1, 0))
  describe(`a rollout with tenants, ${workers} workers`, () => {
    it('a tenant that rejects its own resource and leaves holds no change of another', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { x: '1', y: '1' });
      await using relay = await RelayProcess.start(config(plane, {}, { workers }));
      using pool = new ClientPool(relay.xds, 1);
      const attackers = [await subscribed(pool, 'x1', 'x'), await subscribed(pool, 'x2', 'x')];
      const victims = [await subscribed(pool, 'y1', 'y'), await subscribed(pool, 'y2', 'y')];
      plane.set('cds', { x: 'bad', y: '2' });
      await reaches(relay, 'HELD');
      await eventually(async () => {
        const { names, canaries } = await rolloutOf(relay);
        expect({ names, canaries }).to.deep.equal({
          names: ['x'],
          canaries: { total: 1, accepted: 0, rejected: 1, ended: 0 },
        });
      });
      for (const attacker of attackers) if (heard(attacker, 'bad')) attacker[Symbol.dispose]();
      for (const victim of victims) await victim.gets('cds', { y: '2' });
      plane.set('cds', { x: 'bad', y: '3' });
      for (const victim of victims) await victim.gets('cds', { y: '3' });
      expect(await rolloutOf(relay)).to.deep.include({ state: 'HELD', names: ['x'] });
      expect(attackers.filter((attacker) => heard(attacker, 'bad'))).to.have.length(1);
    });

    it('a canary that accepts, leaves and comes back holds nothing', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { x: '1' });
      await using relay = await RelayProcess.start(config(plane, { bake: '5s' }, { workers }));
      using pool = new ClientPool(relay.xds, 1);
      const clients = [await subscribed(pool, 'x1', 'x'), await subscribed(pool, 'x2', 'x')];
      plane.set('cds', { x: '2' });
      await reaches(relay, 'CANARY');
      const index = await firstWith(clients, '2');
      await sleep(300);
      clients[index]?.[Symbol.dispose]();
      await sleep(300);
      const again = pool.open('delta', `x${index + 1}`);
      again.subscribe('cds', ['x']);
      await again.gets('cds', { x: '2' });
      let held = false;
      const other = clients[1 - index];
      while (other?.has('cds')['x'] !== '2') {
        held ||= (await rolloutOf(relay)).state === 'HELD';
        await sleep(50);
      }
      expect(held).to.equal(false);
    });

    it('a node that leaves for good holds its own change, and one that comes back time and again too', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { x: '1', y: '1', z: '1' });
      await using relay = await RelayProcess.start(config(plane, { bake: '4s' }, { workers }));
      using pool = new ClientPool(relay.xds, 1);
      const leaving = [await subscribed(pool, 'x1', 'x'), await subscribed(pool, 'x2', 'x')];
      const crashing = [await subscribed(pool, 'z1', 'z'), await subscribed(pool, 'z2', 'z')];
      const bystander = await subscribed(pool, 'y1', 'y');
      plane.set('cds', { x: '2', y: '2', z: '2' });
      leaving[await firstWith(leaving, '2')]?.[Symbol.dispose]();
      const index = await firstWith(crashing, '2');
      crashing[index]?.[Symbol.dispose]();
      for (let times = 0; times < 3; times++) {
        await sleep(400);
        const again = pool.open('delta', `z${index + 1}`);
        again.subscribe('cds', ['z']);
        await again.gets('cds', { z: '2' });
        await sleep(200);
        again[Symbol.dispose]();
      }
      expect((await reaches(relay, 'HELD')).reason).to.match(/^1 of 1 canary streams ended within the bake/);
      await bystander.gets('cds', { y: '2' });
      await sleep(3000);
      expect(leaving.filter((client) => heard(client, '2'))).to.have.length(1);
      expect(crashing.filter((client) => heard(client, '2'))).to.have.length(1);
    });

    it('changes of names that a client shares are judged together', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { x: '1', y: '1' });
      await using relay = await RelayProcess.start(config(plane, {}, { workers }));
      using pool = new ClientPool(relay.xds, 1);
      await subscribed(pool, 'x1', 'x');
      await subscribed(pool, 'y1', 'y');
      const both = await subscribed(pool, 'y2', 'y');
      both.subscribe('cds', ['x']);
      await both.gets('cds', { x: '1', y: '1' });
      plane.set('cds', { x: 'bad', y: '2' });
      await reaches(relay, 'HELD');
      await sleep(2500);
      expect(await rolloutOf(relay)).to.deep.include({ state: 'HELD', names: ['x', 'y'] });
    });
  });

async function firstWith(clients: readonly RecordingClient[], content: string): Promise<number> {
  for (;;) {
    const index = clients.findIndex((client) => heard(client, content));
    if (index >= 0) return index;
    await sleep(20);
  }
}

const authority = issueCertificate({ name: 'authority', authority: true });
const server = issueCertificate({ name: 'relay', issuer: authority, dns: ['relay.test'] });
const tenantOf = (name: string): Issued =>
  issueCertificate({ name, issuer: authority, uris: [`spiffe://example.com/${name}`] });

describe('a rollout with verified tenants', () => {
  const secureOf = ({ certificate, privateKey }: Issued) =>
    credentials.createSsl(
      Buffer.from(authority.certificate),
      Buffer.from(privateKey),
      Buffer.from(certificate),
    );

  const listening = (pem: PemFiles) => ({
    tls: {
      certificate: pem.write('server.pem', server.certificate),
      private_key: pem.write('server.key', server.privateKey),
      ca: pem.write('ca.pem', authority.certificate),
      require_client_certificate: true,
    },
  });

  it('a wildcard vetoes what its client may see, and nothing else', async () => {
    using pem = new PemFiles();
    await using plane = await ModelPlane.start();
    plane.set('cds', { 'x-a': '1', 'y-a': '1' });
    const rules = ['x', 'y'].map((tenant) => ({
      principals: [`spiffe://example.com/${tenant}`],
      names: [`${tenant}-*`],
      allow: true,
    }));
    await using relay = await RelayProcess.start(
      config(plane, {}, { xds: { ...listening(pem), authorization: { rules } }, parameters: [] }),
    );
    const open = async (tenant: string) => {
      const pool = new ClientPool(relay.xds, 1, secureOf(tenantOf(tenant)));
      const client = pool.open('delta', 'the-same-id');
      client.rejects = rejectsBad;
      client.subscribe('cds');
      await client.gets('cds', { [`${tenant}-a`]: '1' });
      return { pool, client };
    };
    const [x, y] = [await open('x'), await open('y')];
    using _x = x.pool;
    using _y = y.pool;
    plane.set('cds', { 'x-a': 'bad', 'y-a': '2' });
    await y.client.gets('cds', { 'y-a': '2' });
    await sleep(2500);
    expect(await rolloutOf(relay)).to.deep.include({ state: 'HELD', names: ['x-a'] });
  });

  for (const workers of cases(0, 2))
    it(`a tenant makes no canary of another's node by its id, with workers: ${workers}`, async () => {
      using pem = new PemFiles();
      await using plane = await ModelPlane.start();
      const ids = Array.from({ length: 4 }, (_, at) => `x-${at}`);
      const named = (content: string) => Object.fromEntries(ids.map((_, at) => [`y-${at}`, content]));
      plane.set('cds', { 'x-a': '1', ...named('1') });
      const rules = ['x', 'y'].map((tenant) => ({
        principals: [`spiffe://example.com/${tenant}`],
        names: [`${tenant}-*`],
        allow: true,
      }));
      const xds = { ...listening(pem), authorization: { rules } };
      await using relay = await RelayProcess.start(
        config(plane, { mode: 'MANUAL' }, { xds, workers, parameters: [] }),
      );
      using own = new ClientPool(relay.xds, workers + 1, secureOf(tenantOf('x')));
      using others = new ClientPool(relay.xds, workers + 1, secureOf(tenantOf('y')));
      const victims = await Promise.all(ids.map((id) => subscribed(own, id, 'x-a')));
      // So that these wait, too, and have no canary.
      const before = others.open('delta', 'y');
      before.subscribe('cds', Object.keys(named('1')));
      await before.gets('cds', named('1'));
      before[Symbol.dispose]();
      plane.set('cds', { 'x-a': 'bad', ...named('2') });
      await reaches(relay, 'HELD');
      const attackers = ids.map((id, at) => {
        const client = others.open('delta', id);
        client.subscribe('cds', [`y-${at}`]);
        return client;
      });
      for (const [at, attacker] of attackers.entries()) await attacker.gets('cds', { [`y-${at}`]: '2' });
      await always(() => {
        expect(victims.filter((client) => heard(client, 'bad'))).to.have.length(1);
      }, 1500);
    });

  for (const workers of cases(0, 2))
    it(`only canary_principals are canaries, whatever their node says, with workers: ${workers}`, async () => {
      using pem = new PemFiles();
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      const named = (tenant: string): RelayConfig => {
        const principals = [`spiffe://example.com/${tenant}`];
        const rollout = { mode: 'MANUAL', canary: { percent: 100 }, canary_principals: principals };
        return config(plane, rollout, { xds: listening(pem), workers });
      };
      await using relay = await RelayProcess.start(named('ops'));
      // So that each worker has clients of both.
      const tenants = ['ops', 'web'].map((name) => {
        const pool = new ClientPool(relay.xds, workers + 1, secureOf(tenantOf(name)));
        const clients = Array.from({ length: workers + 1 }, (_, at) => pool.open('delta', `x-${name}-${at}`));
        return { pool, clients };
      });
      const [ops, web] = tenants.map(({ clients }) => clients);
      const all = async (clients: readonly RecordingClient[] = [], content = '1'): Promise<void> => {
        for (const client of clients) await client.gets('cds', { a: content });
      };
      const isOnlyFor = async (canaries: typeof ops, others: typeof ops, content: string): Promise<void> => {
        await all(canaries, content);
        await always(() => {
          expect(others?.filter((client) => heard(client, content))).to.deep.equal([]);
        }, 1500);
        expect((await rolloutOf(relay)).canaries.total).to.equal(workers + 1);
        expect((await operate(relay, 'Release')).status).to.equal(200);
        await all(others, content);
      };
      try {
        for (const client of [...(ops ?? []), ...(web ?? [])]) client.subscribe('cds');
        await all(ops);
        await all(web);
        plane.set('cds', { a: '2' });
        await isOnlyFor(ops, web, '2');
        await relay.reconfigure(named('web'));
        plane.set('cds', { a: '3' });
        await isOnlyFor(web, ops, '3');
      } finally {
        for (const { pool } of tenants) pool[Symbol.dispose]();
      }
    });
});
