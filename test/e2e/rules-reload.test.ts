import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { type } from '../support/in-memory-relay.ts';
import { type AdsStream, ControlPlane, type Request } from '../upstream/ads/control-plane.ts';
import { contentOf as contentOfBody } from '../upstream/ads/responses.ts';
import { always, eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { send } from './support/http.ts';
import { RelayProcess } from './support/relay.ts';
import { Connections, type VariantClient } from './support/variant-client.ts';

const env = { key: 'env', from: 'node.metadata.env' };
const group = { key: 'group', from: 'node.cluster', to: 'node.metadata.group' };
const version = { key: 'version', from: 'node.metadata.version' };

/** A control plane that answers everything with what it saw of the node: `prod`, `prod/a`. */
class Mirror {
  readonly plane = new ControlPlane();
  /** Streams whose node shows this are left without an answer. */
  silent = '-';
  readonly #held: (() => void)[] = [];

  async start(): Promise<this> {
    this.plane.answer = (stream, request) => this.#answer(stream, request);
    await this.plane.listen();
    return this;
  }

  speak(): void {
    this.silent = '-';
    for (const answer of this.#held.splice(0)) answer();
  }

  #answer(stream: AdsStream, request: Request): void {
    if (!('resourceNamesSubscribe' in request) || request.resourceNamesSubscribe.length === 0) {
      if (request.responseNonce !== '' || request.typeUrl !== type('cds')) return;
    }
    const metadata = stream.first?.node?.metadata ?? {};
    const content = ['env', 'group', 'version']
      .map((key) => metadata[key])
      .filter((value) => typeof value === 'string')
      .join('/');
    const names = request.typeUrl === type('cds') ? ['shop', `only-${content.replace('/', '-')}`] : ['shop'];
    const answer = (): void => {
      if (stream.open)
        stream.send(
          type(request.typeUrl === type('cds') ? 'cds' : 'eds'),
          '1',
          ...names.map((name) => `${name}:${content}@1`),
        );
    };
    if (content === this.silent) this.#held.push(answer);
    else answer();
  }
}

describe('a reload of the parameter rules', () => {
  let mirror: Mirror;

  beforeEach(async () => {
    mirror = await new Mirror().start();
  });
  afterEach(() => mirror.plane.kill());

  const config = (...parameters: readonly object[]) => ({
    upstreams: [{ name: 'central', ads: { endpoints: [`127.0.0.1:${mirror.plane.port}`] } }],
    parameters,
    drain_timeout: '100ms',
  });
  const node = (environment: string, cluster: string, more: object = {}) => ({
    id: 'client',
    cluster,
    metadata: { env: environment, ...more },
  });
  const content = (any: { readonly value: Uint8Array } | undefined): string => contentOfBody(any?.value);
  const removals = (client: VariantClient): readonly string[] =>
    client.heard().flatMap((said) => said.filter((line) => line.startsWith('-')));

  for (const protocol of ['delta', 'sotw'] as const) {
    it(`§5 a key more: everybody ends with what is theirs, and nobody without it on the way (${protocol})`, async () => {
      await using relay = await RelayProcess.start(config(env));
      using connections = new Connections(relay.xds);
      const open = (...of: Parameters<typeof node>): VariantClient => {
        const client = connections.open({ protocol, node: node(...of), content });
        client.want('cds');
        client.want('eds', { names: ['shop'] });
        return client;
      };
      const inA = open('prod', 'a');
      const inB = open('prod', 'b');
      const test = open('test', 'b');
      const own = connections.open({ protocol, content });
      own.want('eds', { locators: { shop: { env: 'prod', group: 'a' } } });
      await inA.gets('cds', ['only-prod: prod', 'shop: prod']);
      await inB.gets('eds', ['shop: prod']);
      await test.gets('eds', ['shop: test']);
      await own.gets('eds', ['shop {env == "prod"}: prod']);
      expect(await relay.metric('upstream_sessions')).to.equal(2);

      mirror.silent = 'prod/a';
      relay.configure(config(env, group));
      await inB.gets('cds', ['only-prod-b: prod/b', 'shop: prod/b']);
      await inB.gets('eds', ['shop: prod/b']);
      await test.gets('eds', ['shop: test/b']);
      // Its own session has not been answered: it keeps what it has, be it by name, by wildcard or by locator.
      await always(() => {
        expect(inA.has('cds')).to.deep.equal(['only-prod: prod', 'shop: prod']);
        expect(inA.has('eds')).to.deep.equal(['shop: prod']);
        expect(own.has('eds')).to.deep.equal(['shop {env == "prod"}: prod']);
      }, 300);
      expect([...removals(inA), ...removals(own)]).to.deep.equal([]);
      mirror.speak();
      await inA.gets('cds', ['only-prod-a: prod/a', 'shop: prod/a']);
      await inA.gets('eds', ['shop: prod/a']);
      await eventually(() =>
        expect(own.holds.get('eds')?.get('shop {env == "prod" and group == "a"}')).to.equal('prod/a'),
      );
      expect((await relay.metric('ambiguous_matches_total')) || 0).to.equal(0);

      // And a key less.
      for (const client of [inA, inB, test]) client.heard();
      relay.configure(config(env));
      await inA.gets('cds', ['only-prod: prod', 'shop: prod']);
      await inB.gets('eds', ['shop: prod']);
      await test.gets('cds', ['only-test: test', 'shop: test']);
      if (protocol === 'delta') {
        expect(removals(inA).filter((line) => line !== '-only-prod-a')).to.deep.equal([]);
        expect(removals(test).filter((line) => line !== '-only-test-b')).to.deep.equal([]);
      }
    });
  }

  for (const workers of cases(1, 0))
    it(`§5 a key more: what is subscribed by name is unknown until its own session is answered (workers: ${workers})`, async () => {
      const by = (...rules: readonly object[]) => ({ ...config(...rules), workers });
      await using relay = await RelayProcess.start(by(env));
      using connections = new Connections(relay.xds);
      const clients = (['delta', 'sotw'] as const).map((protocol) => {
        const client = connections.open({ protocol, node: node('prod', 'a'), content });
        client.want('cds', { names: ['shop'] });
        client.want('eds', { names: ['shop'] });
        return client;
      });
      const allHave = async (expected: string): Promise<void> => {
        for (const client of clients)
          for (const short of ['cds', 'eds']) await client.gets(short, [`shop: ${expected}`]);
      };
      await allHave('prod');
      for (const client of clients) client.heard();

      mirror.silent = 'prod/a';
      await relay.reconfigure(by(env, group));
      await eventually(() => expect(mirror.plane.openStreams).to.have.length(2));
      await always(() => {
        for (const client of clients) expect(client.heard()).to.deep.equal([]);
      }, 300);
      mirror.speak();
      await allHave('prod/a');
      for (const client of clients) expect(removals(client)).to.deep.equal([]);
    });

  it('a key that needs what was not kept of the nodes: clients are asked to connect again', async () => {
    await using relay = await RelayProcess.start(config(env));
    using connections = new Connections(relay.xds);
    const before = connections.open({
      protocol: 'delta',
      node: node('prod', 'a', { version: 'v1' }),
      content,
    });
    before.want('eds', { names: ['shop'] });
    await before.gets('eds', ['shop: prod']);
    relay.configure(config(env, version));
    const status = await before.ends();
    expect(status).to.include({ code: 14, details: 'the rules for parameters have changed: connect again' });
    const after = connections.open({
      protocol: 'delta',
      node: node('prod', 'a', { version: 'v1' }),
      content,
    });
    after.want('eds', { names: ['shop'] });
    await after.gets('eds', ['shop: prod/v1']);
  });

  it('upstreams come, change and go: what is served stays until its successor has answered', async () => {
    const second = await new Mirror().start();
    try {
      const [first] = config().upstreams;
      const other = { name: 'other', ads: { endpoints: [`127.0.0.1:${second.plane.port}`] } };
      await using relay = await RelayProcess.start(config(env));
      using connections = new Connections(relay.xds);
      const client = connections.open({ protocol: 'delta', node: node('prod', 'a'), content });
      client.want('cds');
      client.want('eds', { names: ['shop'] });
      await client.gets('cds', ['only-prod: prod', 'shop: prod']);
      await client.gets('eds', ['shop: prod']);
      // Clusters that come after their endpoints bring these again.
      await eventually(async () => {
        client.heard();
        await always(() => {
          expect(client.heard()).to.deep.equal([]);
        }, 300);
      });

      // One of a name that is served by somebody else from now on.
      second.silent = 'prod';
      relay.configure({ ...config(env), upstreams: [{ ...other, types: ['eds'] }, first ?? {}] });
      await eventually(() => expect(second.plane.openStreams).to.have.length(1));
      await always(() => {
        expect(client.heard()).to.deep.equal([]);
      }, 300);
      second.speak();
      await eventually(async () => {
        const { body } = await relay.get('/metrics');
        expect(body).to.match(/upstream_connected\{upstream="other"\} 1/);
      });
      const explained = await eventually(async () => {
        const answer = await relay.rpc('distributary.admin.v1.AdminService/Explain', {
          type: 'eds',
          name: 'shop',
          parameters: { env: 'prod' },
        });
        expect(answer.body).to.match(/"upstream":\s*"other"/);
        return answer;
      });
      expect(explained.status).to.equal(200);

      // All of it by another one, and the first is gone.
      relay.configure({ ...config(env), upstreams: [other] });
      await eventually(() => expect(mirror.plane.openStreams).to.have.length(0));
      await eventually(async () => {
        const { body } = await relay.rpc('distributary.admin.v1.AdminService/ListResources', {});
        expect(body).to.include('"other"').and.to.not.include('"central"');
      });
      expect(client.has('cds')).to.deep.equal(['only-prod: prod', 'shop: prod']);
      expect(removals(client)).to.deep.equal([]);
      expect(relay.faults()).to.deep.equal([]);
    } finally {
      second.plane.kill();
    }
  });

  for (const workers of cases(1, 0))
    it(`§6.6 what nobody served is unknown once an upstream claims it, until that has answered (workers: ${workers})`, async () => {
      const second = await new Mirror().start();
      try {
        const [first] = config().upstreams;
        const only = { workers, drain_timeout: '100ms', upstreams: [{ ...first, types: ['rds'] }] };
        const other = {
          name: 'other',
          types: ['cds'],
          ads: { endpoints: [`127.0.0.1:${second.plane.port}`] },
        };
        await using relay = await RelayProcess.start(only);
        using connections = new Connections(relay.xds);
        const comesWith = (name: string): VariantClient => {
          const client = connections.open({ protocol: 'delta', content: () => '' });
          client.delta('cds', { resourceNamesSubscribe: [name], initialResourceVersions: { shop: '1@1' } });
          return client;
        };
        const names = ['*', 'shop'];
        const before = names.map(comesWith);
        for (const client of before)
          await eventually(() => expect(client.heard()).to.deep.equal([['-shop']]));

        second.silent = '';
        await relay.reconfigure({ ...only, upstreams: [...only.upstreams, other] });
        await eventually(() => expect(second.plane.openStreams).to.have.length(2));
        const hearNothing = (...clients: readonly VariantClient[]): Promise<void> =>
          always(() => {
            for (const client of clients) expect(client.heard()).to.deep.equal([]);
          }, 300);
        await hearNothing(...before);
        const after = names.map(comesWith);
        await hearNothing(...before, ...after);
        second.speak();
        for (const [wild, named] of [before, after]) {
          await wild?.gets('cds', ['only-: ', 'shop: ']);
          await named?.gets('cds', ['shop: ']);
        }
        expect(relay.faults()).to.deep.equal([]);
      } finally {
        second.plane.kill();
      }
    });

  for (const workers of cases(1, 0))
    it(`§6.6 what one upstream claims no later one serves, whatever is reloaded (workers: ${workers})`, async () => {
      using first = new ResourceFiles();
      using second = new ResourceFiles();
      const write = (files: ResourceFiles, content: string, ...names: string[]): void =>
        files.write('cds', new Map(names.map((name) => [name, content])));
      write(first, 'first', 'web', 'shop-a');
      write(second, 'second', 'web', 'shop-a', 'shop-b', 'other');
      const back = { ...second.upstream, name: 'back' };
      const both = (claims: object) => ({
        workers,
        rest: {},
        upstreams: [{ ...first.upstream, name: 'front', ...claims }, back],
        drain_timeout: '100ms',
      });
      const config = both({ names: ['shop-*'] });
      await using relay = await RelayProcess.start(config);
      using connections = new Connections(relay.xds);
      const [delta, sotw] = (['delta', 'sotw'] as const).map((protocol) => connections.open({ protocol }));
      const byName = connections.open({ protocol: 'delta' });
      const all = [delta, sotw].filter((client) => client !== undefined);
      for (const client of all) client.want('cds');
      byName.want('cds', { names: ['shop-a', 'shop-b'] });
      const everybodyGets = async (expected: readonly string[]): Promise<void> => {
        for (const client of all) await client.gets('cds', expected);
        await byName.gets(
          'cds',
          expected.filter((one) => one.startsWith('shop-')),
        );
        await eventually(async () => {
          const node = JSON.stringify({ node: { id: 'poll' } });
          const polled = await send(
            'POST',
            `http://${relay.rest}/v3/discovery:clusters`,
            node,
            'application/json',
          );
          const names = [...polled.body.matchAll(/"name":\s*"([^"]*)"/g)].flatMap(([, name]) => name ?? []);
          expect(names.toSorted()).to.deep.equal(expected.map((one) => one.split(':')[0]));
        });
      };
      await everybodyGets(['other: second', 'shop-a: first', 'web: second']);
      write(second, 'again', 'web', 'shop-a', 'shop-b', 'other');
      await everybodyGets(['other: again', 'shop-a: first', 'web: again']);

      relay.configure(both({ types: ['cds'] }));
      await everybodyGets(['shop-a: first', 'web: first']);
      relay.configure({ ...config, upstreams: [back] });
      await everybodyGets(['other: again', 'shop-a: again', 'shop-b: again', 'web: again']);
      for (const client of all) client.heard();
      relay.configure(config);
      await everybodyGets(['other: again', 'shop-a: first', 'web: again']);

      // The later one is never used: that is no reason not to run.
      relay.configure(both({}));
      await everybodyGets(['shop-a: first', 'web: first']);
      await eventually(() => expect(JSON.stringify(relay.log)).to.include('is never used: upstreams[0]'));
    });
});
