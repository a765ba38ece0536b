import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import {
  DeltaDiscoveryResponseSchema,
  DiscoveryResponseSchema,
  ResourceSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { deltaNames, sotwBodies, XdsClient } from './support/xds-client.ts';

const nameTable = 'type.googleapis.com/istio.networking.nds.v1.NameTable';
/** `table { key: "a" value {} }`, with another key each time. */
const table = (key: string): Buffer =>
  Buffer.concat([Buffer.of(0x0a, 5, 0x0a, 1), Buffer.from(key), Buffer.of(0x12, 0)]);

describe('a singleton without a name, as istiod’s NameTable', () => {
  for (const protocol of ['SOTW', 'DELTA'] as const) {
    it(`passes from ${protocol} to clients of both protocols, and so does its change`, async () => {
      await using stack = new AsyncDisposableStack();
      const plane = await new ControlPlane().listen();
      stack.defer(() => plane.kill());
      const response = (nonce: string, key: string): Buffer => {
        const any = create(AnySchema, { typeUrl: nameTable, value: table(key) });
        const common = { typeUrl: nameTable, nonce };
        return Buffer.from(
          protocol === 'SOTW'
            ? toBinary(
                DiscoveryResponseSchema,
                create(DiscoveryResponseSchema, { ...common, versionInfo: nonce, resources: [any] }),
              )
            : toBinary(
                DeltaDiscoveryResponseSchema,
                create(DeltaDiscoveryResponseSchema, {
                  ...common,
                  systemVersionInfo: nonce,
                  resources: [{ resource: any }],
                }),
              ),
        );
      };
      plane.answer = (stream, request) => {
        if (request.responseNonce === '') stream.sendRaw(response('1', 'a'));
      };
      const relay = stack.use(
        await RelayProcess.start({
          drain_timeout: '100ms',
          upstreams: [upstream(`127.0.0.1:${plane.port}`, protocol)],
        }),
      );
      const delta = stack.use(new XdsClient(relay.xds, 'delta'));
      const sotw = stack.use(new XdsClient(relay.xds, 'sotw'));
      for (const client of [delta, sotw]) client.subscribe(nameTable);
      const told = await delta.gets(nameTable);
      expect(deltaNames(told)).to.deep.equal(['']);
      const [bytes = Buffer.alloc(0)] = told.first;
      expect(fromBinary(ResourceSchema, bytes).resource?.value).to.deep.equal(new Uint8Array(table('a')));
      expect(sotwBodies(await sotw.gets(nameTable))).to.deep.equal([new Uint8Array(table('a'))]);

      plane.openStreams[0]?.sendRaw(response('2', 'b'));
      expect(sotwBodies(await sotw.gets(nameTable, 2))).to.deep.equal([new Uint8Array(table('b'))]);
      await delta.gets(nameTable, 2);
      expect(await relay.metric('upstream_updates_total', 'result="rejected"')).to.equal(0);
    });
  }
});
