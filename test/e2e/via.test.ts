import { create, toBinary } from '@bufbuild/protobuf';
import { type ChannelCredentials, type Client, Metadata, status } from '@grpc/grpc-js';
import { expect } from 'chai';
import { z } from 'zod';
import { DeltaDiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { issueCertificate } from '../support/certificates.ts';
import { nextMessage, openCall, type RawCall, rawClient } from '../support/grpc-calls.ts';
import { type } from '../support/in-memory-relay.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { always, eventually } from './support/eventually.ts';
import { PemFiles, trusting } from './support/pem-files.ts';
import { RelayProcess, upstream } from './support/relay.ts';

const authority = issueCertificate({ name: 'authority', authority: true });
const issue = (name: string) =>
  issueCertificate({ name, issuer: authority, uris: [`spiffe://example.com/${name}/1`] });
const server = issueCertificate({ name: 'relay', issuer: authority, dns: ['relay.test'] });

const backoff = { initial: '100ms', max: '100ms' };

/** Subscribes to all clusters, and says this of who is below. */
function subscribe(client: Client, via?: string): RawCall {
  const metadata = new Metadata();
  if (via !== undefined) metadata.set('x-distributary-via', via);
  const call = openCall(client, `/${ADS_SERVICE}/DeltaAggregatedResources`, metadata);
  const node = { id: 'c', cluster: 'c' };
  const request = create(DeltaDiscoveryRequestSchema, { typeUrl: type('cds'), node });
  call.write(Buffer.from(toBinary(DeltaDiscoveryRequestSchema, request)));
  return call;
}

/** Resolves with the first response. */
async function announce(client: Client, via: string): Promise<void> {
  await nextMessage(subscribe(client, via));
}

describe('x-distributary-via from anybody', () => {
  let plane: ControlPlane;
  let stack: AsyncDisposableStack;

  beforeEach(async () => {
    stack = new AsyncDisposableStack();
    plane = await new ControlPlane().listen();
    stack.defer(() => plane.kill());
    plane.answer = (stream, request) => {
      if (request.responseNonce === '') stream.send(type('cds'), '1', 'shop:1@1');
    };
  });
  afterEach(() => stack.disposeAsync());

  const start = async (config: object = {}): Promise<RelayProcess> =>
    stack.use(
      await RelayProcess.start({
        drain_timeout: '100ms',
        upstreams: [upstream(`127.0.0.1:${plane.port}`, 'DELTA')],
        ...config,
      }),
    );
  const connect = (relay: RelayProcess, secure?: ChannelCredentials): Client => {
    const client = rawClient(relay.xds, secure, { 'grpc.ssl_target_name_override': 'relay.test' });
    stack.defer(() => client.close());
    return client;
  };
  const said = (): readonly string[] =>
    plane.streams.map(({ metadata }) => String(metadata.get('x-distributary-via')[0] ?? ''));

  it('where clients are verified, only of relay_peers: another one causes nothing upstream', async () => {
    const pem = stack.use(new PemFiles());
    const ca = pem.write('ca.crt', authority.certificate);
    const relay = await start({
      xds: { tls: { ...pem.identity('server', server), ca } },
      limits: { relay_peers: ['spiffe://example.com/relay/*'] },
    });
    await announce(connect(relay, trusting(authority, issue('web'))), 'liar/1, liar/1>victim/2');
    await announce(connect(relay, trusting(authority)), 'nobody/1');
    await always(() => {
      expect(plane.streams).to.have.length(1);
    }, 500);
    await announce(connect(relay, trusting(authority, issue('relay'))), 'below/1');
    await eventually(() => expect(plane.streams).to.have.length(2));
    expect(said()[0]).to.match(/^relay\/[0-9a-f]{16}$/);
    expect(said()[1]).to.match(/^relay\/[0-9a-f]{16}, below\/1$/);
  });

  it('where nobody is verified: new paths reopen upstream streams once, and what is said stays small', async () => {
    const relay = await start();
    const client = connect(relay);
    await nextMessage(subscribe(client));
    const path = (index: number, hops: number): string =>
      Array.from({ length: hops }, (_, hop) => `${'x'.repeat(50)}${index}-${hop}/1`).join('>');
    for (let index = 0; index < 40; index++) {
      await announce(client, `liar-${index}/1, ${path(index, 10)}, ${path(index, 200)}`);
    }
    await eventually(() => expect(plane.streams).to.have.length(2));
    await announce(client, 'one-more/1');
    await always(() => {
      expect(plane.streams).to.have.length(2);
    }, 1000);
    for (const header of said()) {
      expect(header.length).to.be.at.most(2048);
      for (const one of header.split(', ')) expect(one.split('>').length).to.be.at.most(16);
    }
  });

  it('a relay below whose streams are ended at once, as this one is cold, is announced all the same', async () => {
    const relay = await start({
      upstreams: [upstream(`127.0.0.1:${plane.port}`, 'DELTA', { backoff })],
    });
    plane.answer = (stream) => stream.fail(status.UNAVAILABLE, 'no control plane can be reached');
    const client = connect(relay);
    const endings: string[] = [];
    subscribe(client).on('status', ({ details }) => endings.push(details));
    await eventually(() => expect(endings.join()).to.include('no control plane can be reached'));
    const below = new Promise<string>((resolve) =>
      subscribe(client, 'below/1').on('status', ({ details }) => resolve(details)),
    );
    expect(await below).to.include('no control plane can be reached');
    const before = said().length;
    await eventually(() => {
      subscribe(client);
      expect(said().length).to.be.above(before);
    });
    expect(said().at(-1)).to.match(/^relay\/[0-9a-f]{16}, below\/1$/);
  });

  it('a control plane that refuses all streams shows on /ready, with its words', async () => {
    const relay = await start({ upstreams: [upstream(`127.0.0.1:${plane.port}`, 'DELTA', { backoff })] });
    plane.answer = (stream) => stream.fail(status.INTERNAL, 'header list too large');
    const client = connect(relay);
    const ready = z.object({
      upstreams: z.tuple([
        z.looseObject({ stale: z.literal(true), refused_streams: z.number(), last_error: z.string() }),
      ]),
    });
    await eventually(async () => {
      // Its streams end, and the control plane is asked for nothing that nobody wants.
      subscribe(client);
      const { upstreams } = ready.parse(JSON.parse((await relay.get('/ready')).body));
      expect(upstreams[0].last_error).to.include('header list too large');
    });
    expect(await relay.metric('upstream_stream_ends_total', 'code="INTERNAL"')).to.be.at.least(1);
  });
});
