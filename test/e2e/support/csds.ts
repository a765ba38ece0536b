import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { createClient, type Transport } from '@connectrpc/connect';
import type { Client } from '@grpc/grpc-js';
import {
  type ClientConfig,
  ClientStatusRequestSchema,
  ClientStatusResponseSchema,
} from '../../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { ServerReflection } from '../../../src/gen/reflection_pb.ts';

const path = '/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';
const same = (bytes: Buffer): Buffer => bytes;

/** A call with one answer on a client's connection; rejects with grpc-js's ServiceError. */
export function unary(client: Client, method: string, request: Uint8Array): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(method, same, same, Buffer.from(request), (error, value) => {
      if (value === undefined) reject(error ?? new Error('no answer'));
      else resolve(value);
    });
  });
}

/** What CSDS tells on a client's connection. */
export async function clientStatus(
  client: Client,
  request: MessageInitShape<typeof ClientStatusRequestSchema> = {},
): Promise<readonly ClientConfig[]> {
  const bytes = toBinary(ClientStatusRequestSchema, create(ClientStatusRequestSchema, request));
  return fromBinary(ClientStatusResponseSchema, await unary(client, path, bytes)).config;
}

export const nodesOf = (configs: readonly ClientConfig[]): readonly string[] =>
  configs.map(({ node }) => node?.id ?? '').toSorted();

export const namesOf = (configs: readonly ClientConfig[]): readonly string[] =>
  configs.flatMap(({ genericXdsConfigs }) => genericXdsConfigs.map(({ name }) => name)).toSorted();

export const safeRegex = (regex: string) => ({
  nodeId: { matchPattern: { case: 'safeRegex' as const, value: { regex } } },
});

/** What reflection lists. */
export async function listedServices(transport: Transport): Promise<readonly string[]> {
  const asked = (async function* () {
    yield { messageRequest: { case: 'listServices' as const, value: '*' } };
  })();
  const names: string[] = [];
  for await (const { messageResponse } of createClient(ServerReflection, transport).serverReflectionInfo(
    asked,
  ))
    if (messageResponse.case === 'listServicesResponse')
      names.push(...messageResponse.value.service.map(({ name }) => name));
  return names;
}
