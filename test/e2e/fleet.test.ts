import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { eventually } from './support/eventually.ts';
import { PageWorld } from './support/page-world.ts';

const classes = z.object({
  total: z.number(),
  streams: z.number(),
  classes: z.array(
    z.looseObject({
      id: z.string(),
      parameters: z.record(z.string(), z.string()),
      streams: z.number(),
      rejecting: z.number(),
      subscriptions: z.array(z.object({ type: z.string(), name: z.string() })),
    }),
  ),
  problems: z.array(
    z.looseObject({
      kind: z.string(),
      type: z.string(),
      what: z.string(),
      clients: z.number(),
      error: z.string(),
    }),
  ),
});

const clients = z.object({
  total: z.number(),
  matching: z.number(),
  clients: z.array(z.looseObject({ id: z.string(), node: z.object({ id: z.string() }), class: z.string() })),
});

const matches = z.object({
  parameter_sets: z.array(z.object({ parameters: z.record(z.string(), z.string()), streams: z.number() })),
  names: z.array(
    z.object({
      name: z.string(),
      matches: z.array(z.looseObject({ state: z.string(), content: z.string(), rejected: z.number() })),
    }),
  ),
});

const detail = z.object({
  node_id: z.string(),
  parameters: z.record(z.string(), z.string()),
  total: z.number(),
  holdings: z.array(
    z.looseObject({
      type: z.string(),
      name: z.string(),
      state: z.string(),
      current: z.boolean(),
      error: z.string(),
    }),
  ),
});

for (const workers of cases(0, 2)) {
  describe(`the clients as a whole, with workers: ${workers}`, () => {
    let world: PageWorld | undefined;

    before(async () => {
      world = await PageWorld.start({ workers });
      await eventually(async () =>
        expect((await list({ state: 'SYNCED', type: 'rtds' })).matching).to.equal(16),
      );
      for (const client of world.of('test').slice(0, 3)) {
        client.rejects = ({ type }) => (type === 'rtds' ? 'no' : undefined);
      }
      world.change(2);
      await eventually(async () => expect((await list({ state: 'ERROR' })).matching).to.equal(3));
    });

    after(() => world?.[Symbol.asyncDispose]());

    async function ask<T extends z.ZodType>(method: string, request: object, answer: T): Promise<z.infer<T>> {
      if (world === undefined) throw new Error('there is no relay');
      const { body } = await world.relay.rpc(`distributary.admin.v1.AdminService/${method}`, request);
      return answer.parse(JSON.parse(body));
    }

    const list = (request: object) => ask('ListClients', request, clients);

    it('ListClasses: who is there, what they subscribe to, and who rejects what', async () => {
      // The answer may be a second old.
      const answer = await eventually(async () => {
        const answered = await ask('ListClasses', {}, classes);
        const rejections = answered.problems.filter(({ kind }) => kind === 'REJECTED');
        expect(rejections.map(({ clients: count }) => count)).to.deep.equal([3]);
        return answered;
      });
      expect(answer).to.deep.include({ total: 3, streams: 16 });
      expect(
        answer.classes.map(({ parameters, streams, rejecting }) => [parameters['env'], streams, rejecting]),
      ).to.deep.equal([
        ['prod', 9, 0],
        ['test', 5, 3],
        ['dev', 2, 0],
      ]);
      expect(answer.classes[0]?.subscriptions).to.deep.include({ type: 'eds', name: 'shop' });
      const rejection = answer.problems.find(({ kind }) => kind === 'REJECTED');
      expect(rejection).to.include({ type: 'rtds', what: 'flags', clients: 3, error: 'no' });
    });

    it('ListClients: searches, filters and pages over all of them', async () => {
      expect((await list({ search: 'PROD-' })).matching).to.equal(9);
      expect((await list({ search: 'nobody' })).matching).to.equal(0);
      expect((await list({ type: 'eds', resource: 'shop' })).matching).to.equal(14);
      expect((await list({ type: 'cds', resource: 'shop' })).matching, 'by a wildcard').to.equal(16);
      const rejecting = await list({ type: 'rtds', state: 'ERROR', resource: 'flags' });
      expect(rejecting.clients.map(({ node }) => node.id).toSorted()).to.deep.equal([
        'test-1',
        'test-2',
        'test-3',
      ]);
      expect((await list({ type: 'rtds', state: 'ERROR', resource: 'limits' })).matching).to.equal(0);
      const ofClass = rejecting.clients[0]?.class ?? '';
      expect((await list({ class: ofClass })).matching).to.equal(5);
      const seen = new Set<string>();
      for (let offset = 0; offset < 16; offset += 5) {
        const page = await list({ limit: 5, offset });
        expect(page).to.include({ total: 16, matching: 16 });
        if (offset === 0)
          expect(page.clients.slice(0, 3).map(({ class: of }) => of)).to.deep.equal(Array(3).fill(ofClass));
        for (const { id } of page.clients) seen.add(id);
      }
      expect(seen.size).to.equal(16);
    });

    it('ListMatches: equal content is equal, gaps and rejections are marked', async () => {
      const answer = await eventually(async () => {
        const answered = await ask('ListMatches', { type: 'cds' }, matches);
        const shop = answered.names.find(({ name }) => name === 'shop');
        expect(shop?.matches[0]?.content).to.be.a('string');
        return answered;
      });
      expect(answer.parameter_sets.map(({ parameters }) => parameters['env'])).to.deep.equal([
        'prod',
        'test',
        'dev',
      ]);
      const cells = (name: string) => answer.names.find((row) => row.name === name)?.matches ?? [];
      const [prod, test, dev] = cells('shop');
      expect(prod?.content).to.be.a('string').and.not.to.equal(test?.content);
      expect(dev?.state).to.equal('absent');
      expect(new Set(cells('recommendations').map(({ content }) => content)).size).to.equal(1);
      await eventually(async () => {
        const flags = await ask('ListMatches', { type: 'rtds', name: 'fla' }, matches);
        expect(flags.names.map(({ name }) => name)).to.deep.equal(['flags']);
        expect(flags.names[0]?.matches.map(({ rejected }) => rejected)).to.deep.equal([0, 3, 0]);
      });
    });

    it('GetClient: every name that a stream has, what is wrong first', async () => {
      const [first] = (await list({ search: 'test-1', limit: 1 })).clients;
      const answer = await eventually(async () => {
        const answered = await ask('GetClient', { id: first?.id }, detail);
        expect(answered).to.deep.include({ node_id: 'test-1', parameters: { env: 'test' }, total: 9 });
        expect(answered.holdings.slice(1).map(({ state }) => state)).to.deep.equal(Array(8).fill('SYNCED'));
        return answered;
      });
      expect(answer.holdings[0]).to.include({ type: 'rtds', name: 'flags', state: 'ERROR', error: 'no' });
      const short = await ask('GetClient', { id: first?.id, limit: 1 }, detail);
      expect([short.holdings.length, short.total]).to.deep.equal([1, 9]);
      const nobody = await ask('GetClient', { id: 'nobody' }, z.object({ code: z.string() }));
      expect(nobody.code).to.equal('not_found');
    });
  });
}
