import { create, toBinary } from '@bufbuild/protobuf';
import { status } from '@grpc/grpc-js';
import { expect } from 'chai';
import { z } from 'zod';
import { DeltaDiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { openCall, rawClient } from '../support/grpc-calls.ts';
import { type } from '../support/in-memory-relay.ts';
import { type AdsStream, ControlPlane, type Request } from '../upstream/ads/control-plane.ts';
import { contentOf } from '../upstream/ads/responses.ts';
import { always, eventually } from './support/eventually.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { Connections } from './support/variant-client.ts';

const poison = 'type.googleapis.com/istio.io.debug';
const asksPoison = ({ typeUrl }: Request): boolean => typeUrl.startsWith(poison);

const readiness = z.object({
  upstreams: z.array(
    z.looseObject({
      connected: z.boolean(),
      last_error: z.string().optional(),
      refused_streams: z.number().optional(),
      suspect_types: z.array(z.string()).optional(),
    }),
  ),
});

/** Ends each stream on which it is asked for the poisonous type, as istiod does; tells cds and eds as they are. */
class Plane {
  readonly plane = new ControlPlane();
  #content = 'first';

  async start(): Promise<this> {
    this.plane.answer = (stream, request) => this.#answer(stream, request);
    await this.plane.listen();
    return this;
  }

  get address(): string {
    return `127.0.0.1:${this.plane.port}`;
  }

  set(content: string): void {
    this.#content = content;
    for (const stream of this.plane.openStreams) this.#tell(stream);
  }

  #answer(stream: AdsStream, request: Request): void {
    if (asksPoison(request)) stream.fail(status.UNAUTHENTICATED, 'debug is not for you');
    else if (request.responseNonce === '') this.#tell(stream);
  }

  #tell(stream: AdsStream): void {
    const asked = new Set(stream.requests.map(({ typeUrl }) => typeUrl));
    for (const short of ['cds', 'eds']) {
      if (asked.has(type(short))) stream.send(type(short), '1', `shop:${this.#content}@${this.#content}`);
    }
  }
}

interface Poisoner extends Disposable {
  ask(typeUrl: string): void;
}

/** A client that asks for nothing but poisonous types. */
function poisoner(address: string): Poisoner {
  const client = rawClient(address);
  const call = openCall(client, `/${ADS_SERVICE}/DeltaAggregatedResources`);
  call.on('error', () => {});
  return {
    ask(typeUrl) {
      const request = create(DeltaDiscoveryRequestSchema, { typeUrl, node: { id: 'evil', cluster: 'x' } });
      call.write(Buffer.from(toBinary(DeltaDiscoveryRequestSchema, request)));
    },
    [Symbol.dispose]() {
      call.cancel();
      client.close();
    },
  };
}

describe('one client poisons the upstream stream of everyone', () => {
  it('the others go on, it is tried alone and ever more rarely, and not at all once it has gone', async () => {
    const plane = await new Plane().start();
    await using stack = new AsyncDisposableStack();
    stack.defer(() => plane.plane.kill());
    const relay = stack.use(
      await RelayProcess.start({ drain_timeout: '100ms', upstreams: [upstream(plane.address, 'DELTA')] }),
    );
    using connections = new Connections(relay.xds);
    const good = connections.open({ protocol: 'delta', content: (any) => contentOf(any?.value) });
    good.want('cds');
    good.want('eds', { names: ['shop'] });
    await good.gets('cds', ['shop: first']);
    await good.gets('eds', ['shop: first']);

    using evil = poisoner(relay.xds);
    evil.ask(poison);
    await eventually(() => expect(plane.plane.streams.length).to.be.at.least(6));
    plane.set('second');
    await good.gets('cds', ['shop: second']);
    await good.gets('eds', ['shop: second']);

    const withPoison = plane.plane.streams.filter(({ requests }) => requests.some(asksPoison));
    expect(
      withPoison.filter(({ requests }) => requests.length > 1),
      'never with the others',
    ).to.deep.equal([]);
    const others = plane.plane.streams.filter((stream) => !withPoison.includes(stream));
    expect(others, 'their stream is still the first one').to.have.length(1);
    expect(others.filter(({ open }) => open)).to.have.length(1);

    const answer = await relay.get('/ready');
    expect(answer.status).to.equal(200);
    const [state] = readiness.parse(JSON.parse(answer.body)).upstreams;
    expect(state).to.deep.include({ connected: true, refused_streams: 1, suspect_types: [poison] });
    expect(state?.last_error).to.include('debug is not for you');
    expect(await relay.metric('upstream_stream_ends_total', 'code="UNAUTHENTICATED"')).to.be.at.least(5);
    expect(await relay.metric('upstream_reconnects_total')).to.equal(0);
    const page = await relay.get('/');
    expect(page.body).to.include('1 refused stream').and.to.include('istio.io.debug');
    const overview = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
    expect(overview.body).to.include('suspect_types').and.to.include(poison);

    evil[Symbol.dispose]();
    await eventually(async () => {
      const now = readiness.parse(JSON.parse((await relay.get('/ready')).body)).upstreams[0];
      expect(now?.suspect_types).to.equal(undefined);
    });
    const asked = plane.plane.requests.filter(asksPoison).length;
    await always(() => {
      expect(plane.plane.requests.filter(asksPoison).length).to.equal(asked);
    }, 2000);
    plane.set('third');
    await good.gets('cds', ['shop: third']);
  });

  it('a client that invents a type each time ends the stream of the others never', async () => {
    const plane = await new Plane().start();
    await using stack = new AsyncDisposableStack();
    stack.defer(() => plane.plane.kill());
    const relay = stack.use(
      await RelayProcess.start({ drain_timeout: '100ms', upstreams: [upstream(plane.address, 'DELTA')] }),
    );
    using connections = new Connections(relay.xds);
    const good = connections.open({ protocol: 'delta', content: (any) => contentOf(any?.value) });
    good.want('cds');
    good.want('eds', { names: ['shop'] });
    await good.gets('cds', ['shop: first']);
    await good.gets('eds', ['shop: first']);
    const [usual] = plane.plane.openStreams;

    using evil = poisoner(relay.xds);
    const askedTypes = () => new Set(plane.plane.requests.filter(asksPoison).map(({ typeUrl }) => typeUrl));
    for (let index = 0; index < 6; index++) {
      evil.ask(`${poison}-${index}`);
      await eventually(() => expect(askedTypes().size).to.equal(index + 1));
    }
    // More than the streams that a session may have apart.
    for (let index = 6; index < 20; index++) evil.ask(`${poison}-${index}`);
    const { length } = plane.plane.streams;
    await eventually(() => expect(plane.plane.streams.length).to.be.at.least(length + 5));
    expect(usual?.open).to.equal(true);
    expect(plane.plane.streams.filter(({ requests }) => !requests.some(asksPoison))).to.deep.equal([usual]);
    expect(plane.plane.openStreams.length).to.be.at.most(1 + 2 + 8);
    plane.set('second');
    await good.gets('cds', ['shop: second']);
    await good.gets('eds', ['shop: second']);
    expect(usual?.requests.some(asksPoison)).to.equal(false);
  });
});
