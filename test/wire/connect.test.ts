import type { MessageInitShape } from '@bufbuild/protobuf';
import { fromBinary } from '@bufbuild/protobuf';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport } from '@connectrpc/connect-node';
import type { Client } from '@grpc/grpc-js';
import { expect } from 'chai';
import { Health, HealthCheckResponse_ServingStatus as Status } from '../../src/gen/health_pb.ts';
import { ServerReflection, type ServerReflectionRequestSchema } from '../../src/gen/reflection_pb.ts';
import { systemClock } from '../../src/model/clock.ts';
import { ConnectPaths } from '../../src/wire/connect.ts';
import { health } from '../../src/wire/health.ts';
import type { GrpcServer } from '../../src/wire/http2-server.ts';
import { reflection, reflectionAliases } from '../../src/wire/reflection.ts';
import { openCall, rawClient, statusOf } from '../support/grpc-calls.ts';
import { closeServers, serve } from './serve.ts';

const ads = 'envoy.service.discovery.v3.AggregatedDiscoveryService';

class Switch {
  readonly #listeners = new Set<() => void>();
  #on = true;
  serving(): boolean {
    return this.#on;
  }
  subscribe(changed: () => void): () => void {
    this.#listeners.add(changed);
    return () => this.#listeners.delete(changed);
  }
  set(on: boolean): void {
    this.#on = on;
    for (const listener of this.#listeners) listener();
  }
  get listeners(): number {
    return this.#listeners.size;
  }
}

describe('cold services', () => {
  const clients: Client[] = [];
  let readiness: Switch;
  let served: string[];
  let server: GrpcServer;

  async function start(): Promise<void> {
    readiness = new Switch();
    served = [ads];
    server = await serve({
      accept: () => undefined,
      auxiliary: new ConnectPaths({
        clock: systemClock,
        stalledMilliseconds: () => 60_000,
        services: [
          health(
            () => served,
            () => readiness.serving(),
            (changed) => readiness.subscribe(changed),
          ),
          reflection(() => served),
        ],
        aliases: reflectionAliases,
        refused: () => undefined,
      }),
    });
  }

  function transport() {
    return createGrpcTransport({ baseUrl: `http://${server.address}` });
  }

  afterEach(async () => {
    for (const open of clients.splice(0)) open.close();
    await closeServers();
  });

  describe('health', () => {
    beforeEach(() => start());

    it('Check knows the whole and each service, and NOT_FOUND otherwise', async () => {
      const health = createClient(Health, transport());
      for (const service of ['', ads]) {
        expect((await health.check({ service })).status).to.equal(Status.SERVING);
      }
      readiness.set(false);
      expect((await health.check({})).status).to.equal(Status.NOT_SERVING);
      const error = await health.check({ service: 'x' }).catch(String);
      expect(error).to.match(/not_found.*"x"/);
    });

    it('Watch tells the state at once and each change, and nothing is left when the client goes', async () => {
      const health = createClient(Health, transport());
      const leave = new AbortController();
      const seen: Status[] = [];
      try {
        for await (const { status } of health.watch({ service: ads }, { signal: leave.signal })) {
          seen.push(status);
          if (seen.length === 3) leave.abort();
          else readiness.set(!readiness.serving());
        }
      } catch {
        // The client cancelled.
      }
      expect(seen).to.deep.equal([Status.SERVING, Status.NOT_SERVING, Status.SERVING]);
      while (readiness.listeners > 0) await new Promise((resolve) => setTimeout(resolve, 5));
    });

    it('Watch of an unknown service says SERVICE_UNKNOWN and stays open', async () => {
      const health = createClient(Health, transport());
      const leave = new AbortController();
      const iterator = health.watch({ service: 'x' }, { signal: leave.signal })[Symbol.asyncIterator]();
      expect(await iterator.next()).to.have.nested.property('value.status', Status.SERVICE_UNKNOWN);
      leave.abort();
    });

    it('a service that is served from now on is known from now on', async () => {
      const health = createClient(Health, transport());
      const leave = new AbortController();
      const iterator = health.watch({ service: 'x' }, { signal: leave.signal })[Symbol.asyncIterator]();
      await iterator.next();
      served.push('x');
      readiness.set(true);
      expect(await iterator.next()).to.have.nested.property('value.status', Status.SERVING);
      expect((await health.check({ service: 'x' })).status).to.equal(Status.SERVING);
      expect((await health.list({})).statuses).to.have.property('x');
      served.pop();
      readiness.set(true);
      expect(await iterator.next()).to.have.nested.property('value.status', Status.SERVICE_UNKNOWN);
      leave.abort();
    });

    it('List has them all', async () => {
      const { statuses } = await createClient(Health, transport()).list({});
      expect(Object.keys(statuses)).to.deep.equal(['', ads]);
      expect(statuses[ads]?.status).to.equal(Status.SERVING);
    });

    it('a drain ends the watches without waiting for its deadline', async () => {
      const health = createClient(Health, transport());
      const iterator = health.watch({})[Symbol.asyncIterator]();
      await iterator.next();
      const outcome = iterator.next().catch(String);
      await server.drain(600_000); // longer than this test may take
      expect(await outcome).to.contain('unavailable');
    });

    it('answers Connect with JSON too, and clients without an authority that is a host', async () => {
      const connect = createConnectTransport({
        baseUrl: `http://${server.address}`,
        httpVersion: '2',
        useBinaryFormat: false,
      });
      expect((await createClient(Health, connect).check({})).status).to.equal(Status.SERVING);
      const odd = rawClient(server.address, undefined, { 'grpc.default_authority': '%2Ftmp%2Fx.sock' });
      clients.push(odd);
      const call = openCall(odd, '/grpc.health.v1.Health/Check');
      call.resume().end(Buffer.alloc(0));
      expect((await statusOf(call)).code).to.equal(0);
    });

    it('a request over the limit is RESOURCE_EXHAUSTED', async () => {
      const health = createClient(Health, transport());
      const error = await health.check({ service: 'x'.repeat(5000) }).catch(String);
      expect(error).to.contain('resource_exhausted');
    });
  });

  describe('reflection', () => {
    type Asked = NonNullable<MessageInitShape<typeof ServerReflectionRequestSchema>['messageRequest']>;

    async function ask(...asked: Asked[]) {
      const reflection = createClient(ServerReflection, transport());
      async function* requests() {
        for (const messageRequest of asked) yield { messageRequest };
      }
      const answers = [];
      for await (const { messageResponse } of reflection.serverReflectionInfo(requests()))
        answers.push(messageResponse);
      return answers;
    }

    beforeEach(() => start());

    it('lists our services', async () => {
      const [answer] = await ask({ case: 'listServices', value: '' });
      if (answer?.case !== 'listServicesResponse') throw new Error('no list');
      expect(answer.value.service.map((service) => service.name)).to.deep.equal([ads]);
    });

    it('gives the file of a symbol with what it imports, each once for a client', async () => {
      const names = (
        await ask(
          { case: 'fileContainingSymbol', value: ads },
          { case: 'fileContainingSymbol', value: 'envoy.service.discovery.v3.DiscoveryRequest.node' },
          { case: 'fileContainingSymbol', value: `${ads}.StreamAggregatedResources` },
          { case: 'fileByFilename', value: 'health.proto' },
        )
      ).map((answer) => {
        if (answer.case !== 'fileDescriptorResponse') throw new Error(`${answer.case}`);
        return answer.value.fileDescriptorProto.map(
          (bytes) => fromBinary(FileDescriptorProtoSchema, bytes).name,
        );
      });
      expect(names[0]?.[0]).to.equal('envoy/service/discovery/v3/ads.proto');
      expect(names[0]).to.include('google/protobuf/any.proto');
      expect(names[1]).to.deep.equal(['envoy/service/discovery/v3/discovery.proto']);
      expect(names[2]).to.deep.equal(['envoy/service/discovery/v3/ads.proto']);
      expect(names[3]).to.deep.equal(['health.proto']);
    }).timeout(20_000);

    it('says what it does not know', async () => {
      const unknown = await ask(
        { case: 'fileByFilename', value: 'no.proto' },
        { case: 'fileContainingSymbol', value: 'no.Such' },
        { case: 'allExtensionNumbersOfType', value: 'google.protobuf.MethodOptions' },
        { case: undefined },
      );
      const codes = unknown.map((answer) => answer.case === 'errorResponse' && answer.value.errorCode);
      expect(codes).to.deep.equal([5, 5, 12, 3]);
    });

    it('answers under its v1alpha name too', async () => {
      const one = rawClient(server.address);
      clients.push(one);
      const call = openCall(one, '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo');
      const answer = new Promise<Buffer>((resolve) => call.once('data', resolve));
      call.end(Buffer.from([0x3a, 0])); // list_services: ""
      expect((await answer).includes(ads)).to.equal(true);
    });
  });
});
