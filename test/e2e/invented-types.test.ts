import { expect } from 'chai';
import { typeUrl } from '../../src/model/brand.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { cases } from '../support/cases.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { field } from './support/large-messages.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { type Ending, XdsClient } from './support/xds-client.ts';

const longest = 256;
const invented = (index: number): string =>
  `type.googleapis.com/${String(index).padEnd(longest - 'type.googleapis.com/'.length, 'x')}`;

describe('types that a client invents', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
    relay = await RelayProcess.start({
      upstreams: [files.upstream],
      limits: { max_subscriptions_per_stream: 150 },
    });
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  async function ends(protocol: 'sotw' | 'delta', ask: (client: XdsClient) => void): Promise<Ending> {
    await using client = new XdsClient(relay.xds, protocol);
    ask(client);
    return await client.ends();
  }

  for (const protocol of ['sotw', 'delta'] as const) {
    it(`${protocol}: a type URL of 257 bytes is INVALID_ARGUMENT, one of 256 is served`, async () => {
      const status = await ends(protocol, (client) => client.subscribe(`${invented(0)}x`, []));
      expect(status.code).to.equal(Code.INVALID_ARGUMENT);
      expect(status.details).to.contain('type_url has 257 bytes: at most 256 are accepted');
      await using client = new XdsClient(relay.xds, protocol);
      client.subscribe(invented(0));
      await client.gets(invented(0));
    });
  }

  it('a type URL of 4 MiB costs an error, not a line of 4 MiB', async () => {
    const status = await ends('sotw', (client) => client.subscribe(`a/${'x'.repeat(4_000_000)}`));
    expect(status.code).to.equal(Code.INVALID_ARGUMENT);
    expect(status.details).to.have.length.below(1100);
  });

  it('the 101st type of a stream is RESOURCE_EXHAUSTED', async () => {
    const status = await ends('sotw', (client) => {
      for (let index = 0; index < 101; index++) client.subscribe(invented(index));
    });
    expect(status.code).to.equal(Code.RESOURCE_EXHAUSTED);
    expect(status.details).to.contain('101 types on one stream: at most 100 are accepted');
  });

  it('types without a name count as subscriptions', async () => {
    // EDS and LEDS have no wildcard: nothing named is nothing subscribed.
    const status = await ends('delta', (client) => {
      client.delta('leds');
      client.subscribe(
        'eds',
        Array.from({ length: 150 }, (_, index) => `name-${index}`),
      );
    });
    expect(status.code).to.equal(Code.RESOURCE_EXHAUSTED);
    expect(status.details).to.contain('151 subscriptions on one stream: at most 150');
  });

  it('20 streams of 100 rejected types each: page, status, metrics and log stay small', async () => {
    const streams = 20;
    const before = relay.output.length;
    const clients = Array.from({ length: streams }, (_, at) => {
      const client = new XdsClient(relay.xds, 'sotw');
      for (let index = 0; index < 100; index++) client.subscribe(invented(1000 * at + index));
      return client;
    });
    try {
      await eventually(() => {
        for (const { received } of clients) expect(received).to.have.length(100);
      });
      for (const client of clients) {
        for (const { type, nonce } of client.received) {
          const error = field(6, field(2, 'r'.repeat(10_000)));
          client.raw(Buffer.concat([field(4, type), field(5, nonce), error]));
        }
      }
      const nacks = (): Promise<number> => relay.metric('downstream_requests_total', 'kind="nack"');
      await eventually(async () => expect(await nacks()).to.equal(streams * 100));
      expect((await relay.get('/')).body).to.have.length.below(500_000);
      expect((await relay.get('/metrics')).body).to.have.length.below(250_000);
      const status = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
      expect(status.body).to.have.length.below(700_000);
      const { types } = JSON.parse(status.body) as { types: { type: string; subscriptions: number }[] };
      expect(types).to.have.length.below(50);
      const sum = types.reduce((total, { subscriptions }) => total + subscriptions, 0);
      expect(sum, 'what has no row of its own is in another').to.equal(streams * 100);
      // A line for each of the types that are told apart, and twenty for the others.
      expect(relay.output.length - before).to.be.below(300_000);
      const lines = relay.log.filter(({ message }) => message.startsWith('a client rejected'));
      expect(lines).to.have.length.below(60);
    } finally {
      await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
    }
  });

  for (const workers of cases(0, 1))
    it(`one client that names types takes no label from a type that is served, ${workers} workers`, async () => {
      await using stack = new AsyncDisposableStack();
      const plane = await new ControlPlane().listen();
      stack.defer(() => plane.kill());
      const served = typeUrl('type.googleapis.com/example.Served');
      plane.answer = (stream, { typeUrl: asked, responseNonce }) => {
        if (asked === served && responseNonce === '') stream.send(served, '1', 'x:1@1');
      };
      const own = stack.use(
        await RelayProcess.start({
          workers,
          upstreams: [upstream(`127.0.0.1:${plane.port}`, 'DELTA')],
        }),
      );
      const attacker = stack.use(new XdsClient(own.xds, 'delta'));
      for (let index = 0; index < 40; index++) attacker.subscribe(invented(index), ['x']);
      const subscribers = (label: string): Promise<number> =>
        own.metric('downstream_subscriptions', `type="${label}"`);
      await eventually(async () => expect(await subscribers('other')).to.equal(32));
      expect(await subscribers(invented(0)), 'the first eight have labels').to.equal(1);
      const client = stack.use(new XdsClient(own.xds, 'delta'));
      client.subscribe(served, ['x']);
      await client.gets(served);
      await eventually(async () => expect(await subscribers(served)).to.equal(1));
      expect(await own.metric('downstream_responses_total', `type="${served}"`)).to.equal(1);
      const { body } = await own.rpc('distributary.admin.v1.AdminService/Status', {});
      const { types } = JSON.parse(body) as { types: { type: string }[] };
      const names = types.map(({ type }) => type);
      expect(names)
        .to.include.members([served, invented(0), 'other'])
        .and.to.have.length(10);
    });
});
