import { connect } from 'node:http2';
import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import {
  DeltaDiscoveryRequestSchema,
  DiscoveryRequestSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { ResourceFiles } from '../e2e/support/files.ts';
import { ClientPool } from '../e2e/support/recording-client.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { type } from '../support/in-memory-relay.ts';
import { rawCall } from './support/calls.ts';

const MB = 1 << 20;
const clusters = 2000;
const node = { id: 'n', cluster: 'c' };
const names = Array.from({ length: clusters }, (_, index) => `c${index}`);
/** 3 MB in all. */
const contents = new Map(names.map((name) => [name, 'x'.repeat(1500)]));

describe('responses that only one client gets', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', contents);
    relay = await RelayProcess.startMeasurable({ upstreams: [files.upstream] });
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  it('are not kept for others: clients subscribe again to what they share', async () => {
    using pool = new ClientPool(relay.xds);
    const clients = Array.from({ length: 14 }, () => pool.open('delta'));
    for (const client of clients) {
      client.subscribe('cds', ['*']);
      await eventually(() => expect(client.holds.get('cds')?.size).to.equal(clusters));
      client.said.splice(0);
    }
    const { used } = await relay.memory();
    for (const client of clients) {
      client.subscribe('cds', ['*']);
      await eventually(() => expect(client.said).to.have.length(1));
      client.said.splice(0);
    }
    expect((await relay.memory()).used - used).to.be.below(8 * MB);
  });

  it('wait past limits.max_held_bytes_per_peer until some are read: a fleet of one address gets every update', async () => {
    using large = new ResourceFiles();
    const own = Array.from({ length: 8 }, (_, index) => `own-${index}`);
    const write = (content: string): void =>
      large.write('eds', new Map(own.map((name) => [name, content.repeat(2 * MB)])));
    write('0');
    await using bounded = await RelayProcess.start({
      upstreams: [large.upstream],
      limits: { max_held_bytes_per_peer: 5 * MB },
    });
    using pool = new ClientPool(bounded.xds);
    const clients = own.map((name) => ({ name, client: pool.open('delta') }));
    const hold = (content: string): Promise<void> =>
      eventually(() => {
        for (const { name, client } of clients)
          expect(client.holds.get('eds')?.get(name)?.[0]).to.equal(content);
      });
    for (const { name, client } of clients) {
      client.subscribe('eds', [name]);
      await eventually(() => expect(client.holds.get('eds')?.size).to.equal(1));
    }
    for (const content of ['1', '2']) {
      write(content);
      await hold(content);
    }
    expect(clients.filter(({ client }) => client.status !== undefined)).to.have.length(0);
    expect(await bounded.metric('downstream_rejected_total', 'held_bytes')).to.be.oneOf([0, Number.NaN]);
  });

  const fields = { node, typeUrl: type('cds') };
  const messages = {
    delta: toBinary(
      DeltaDiscoveryRequestSchema,
      create(DeltaDiscoveryRequestSchema, { ...fields, resourceNamesSubscribe: names }),
    ),
    sotw: toBinary(
      DiscoveryRequestSchema,
      create(DiscoveryRequestSchema, { ...fields, resourceNames: names }),
    ),
  };
  for (const [name, path, message] of [
    ['delta', `/${ADS_SERVICE}/DeltaAggregatedResources`, messages.delta],
    ['SotW', `/${ADS_SERVICE}/StreamAggregatedResources`, messages.sotw],
    ['Fetch', '/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters', messages.sotw],
  ] as const)
    it(`count as held for its peer until it reads them: ${name}`, async () => {
      const held = (): Promise<number> => relay.metric('peer_held_bytes');
      const responses = (): Promise<number> => relay.metric('downstream_responses_total');
      const before = await responses();
      const session = connect(`http://${relay.xds}`);
      const { stream } = rawCall(session, path);
      stream.pause();
      try {
        stream.write(frameOf(Buffer.from(message)));
        if (name === 'Fetch') stream.end();
        await eventually(async () => expect(await responses()).to.be.above(before));
        const unread = await held();
        stream.resume();
        await eventually(async () => expect(unread - (await held())).to.be.above(2.5 * MB));
      } finally {
        session.destroy();
      }
    });
});

describe('answers to Fetch', () => {
  const path = '/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters';
  const message = create(DiscoveryRequestSchema, { node, typeUrl: type('cds'), resourceNames: names });
  const request = frameOf(Buffer.from(toBinary(DiscoveryRequestSchema, message)));
  let files: ResourceFiles;
  let relay: RelayProcess;

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', contents);
    relay = await RelayProcess.start({
      upstreams: [files.upstream],
      limits: { max_held_bytes_per_peer: 10 * MB },
    });
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  it('that are read may be as many as a client asks for, whatever is kept for its next polls', async () => {
    const statuses: string[] = [];
    for (let call = 0; call < 4; call++) {
      const session = connect(`http://${relay.xds}`);
      const { stream, ended } = rawCall(session, path);
      stream.end(request);
      statuses.push(await ended);
      session.destroy();
    }
    expect(statuses).to.deep.equal(['0', '0', '0', '0']);
  });

  it('that nobody reads are refused past limits.max_held_bytes_per_peer', async () => {
    const session = connect(`http://${relay.xds}`);
    const before = await relay.metric('peer_held_bytes');
    const statuses: string[] = [];
    for (let call = 0; call < 20; call++) {
      const { stream, ended } = rawCall(session, path);
      stream.pause();
      stream.end(request);
      void ended.then((status) => statuses.push(status));
    }
    try {
      await eventually(() => expect(statuses.filter((status) => status === '8')).to.have.length.above(10));
      expect((await relay.metric('peer_held_bytes')) - before).to.be.below(18 * MB);
    } finally {
      session.destroy();
    }
  });
});

describe('what a client says that it has, and is gone', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([['c', '1']]));
    files.write('rds', new Map([['r', '1']]));
    relay = await RelayProcess.start({ upstreams: [files.upstream], xds: { removal_grace: '2s' } });
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  for (const [count, kept] of [
    [1000, 'are kept for removal_grace, and its peer pays for them'],
    [1001, 'are too many to be kept'],
  ] as const)
    it(`${count} clusters that a client says that it has, and that are gone, ${kept}`, async () => {
      const held = (): Promise<number> => relay.metric('peer_held_bytes');
      const responses = (): Promise<number> => relay.metric('downstream_responses_total', 'cds');
      const answered = (await responses()) || 0;
      const before = await held();
      const gone = Array.from({ length: count }, (_, index) => [`gone-${index}`, '1'] as const);
      const session = connect(`http://${relay.xds}`);
      const { stream } = rawCall(session, `/${ADS_SERVICE}/DeltaAggregatedResources`);
      try {
        const message = (of: Parameters<typeof type>[0], more: object): Buffer =>
          frameOf(
            Buffer.from(
              toBinary(
                DeltaDiscoveryRequestSchema,
                create(DeltaDiscoveryRequestSchema, { node, typeUrl: type(of), ...more }),
              ),
            ),
          );
        stream.write(
          Buffer.concat([
            message('cds', { initialResourceVersions: Object.fromEntries<string>(gone) }),
            message('rds', { resourceNamesSubscribe: ['r'] }),
          ]),
        );
        await eventually(async () => expect(await responses()).to.be.above(answered));
        const most = (await held()) - before;
        if (count === 1000) expect(most).to.be.above(550_000);
        else expect(most).to.be.below(100_000);
        await eventually(async () => expect((await held()) - before).to.be.below(100_000));
      } finally {
        session.destroy();
      }
    });
});
