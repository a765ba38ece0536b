import {
  createFileRegistry,
  type DescFile,
  type FileRegistry,
  type MessageInitShape,
  toBinary,
} from '@bufbuild/protobuf';
import { type FileDescriptorProto, FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import type { ServiceImpl } from '@connectrpc/connect';
import { file_health } from '../gen/health_pb.ts';
import {
  file_reflection,
  ServerReflection,
  type ServerReflectionRequest,
  type ServerReflectionResponseSchema,
} from '../gen/reflection_pb.ts';
import { lazily, onceFor } from '../model/maps.ts';
import type { AuxiliaryService, CallKind } from './connect.ts';
import { Code } from './grpc-status.ts';
import { envoyRegistry } from './registry.ts';

/** Names of symbols and files. */
const maxRequestBytes = 4096;

const reflectionCalls: CallKind = {
  name: 'reflection calls',
  max: 100,
  maxPerPeer: 10,
  whenExceeded: 'REFUSED',
};

/** The older name of the same messages, which many tools still try first. */
export const reflectionAliases: ReadonlyMap<string, string> = new Map([
  [
    '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo',
    `/${ServerReflection.typeName}/ServerReflectionInfo`,
  ],
]);

type ReflectionAnswer = NonNullable<
  MessageInitShape<typeof ServerReflectionResponseSchema>['messageResponse']
>;

/**
 * gRPC server reflection. `services` are the full names that it lists now; their descriptors are looked up in the Envoy
 * API, loaded when somebody asks.
 */
export function reflection(services: () => readonly string[]): AuxiliaryService {
  const descriptors = lazily(() => descriptorsOf([file_health, file_reflection]));
  const implementation: ServiceImpl<typeof ServerReflection> = {
    async *serverReflectionInfo(requests) {
      /** Files that this client has: not sent again as somebody's dependency. */
      const sent = new Set<string>();
      for await (const request of requests) {
        yield {
          validHost: request.host,
          originalRequest: request,
          messageResponse: answer(request, services().toSorted(), descriptors, sent),
        };
      }
    },
  };
  return {
    routes: (router) => void router.service(ServerReflection, implementation),
    maxRequestBytes,
    kindOf: () => reflectionCalls,
  };
}

function answer(
  { messageRequest: asked }: ServerReflectionRequest,
  listed: readonly string[],
  descriptors: () => FileRegistry,
  sent: Set<string>,
): ReflectionAnswer {
  switch (asked.case) {
    case 'listServices':
      return { case: 'listServicesResponse', value: { service: listed.map((name) => ({ name })) } };
    case 'fileByFilename':
      return filesAnswer(descriptors().getFile(asked.value), asked.value, sent);
    case 'fileContainingSymbol':
      return filesAnswer(fileOfSymbol(descriptors(), asked.value), asked.value, sent);
    // What tools read has none but those of options, and these come with the files that set them.
    case 'fileContainingExtension':
    case 'allExtensionNumbersOfType':
      return errorAnswer(Code.UNIMPLEMENTED, 'extensions are not listed here');
    default:
      return errorAnswer(Code.INVALID_ARGUMENT, 'the request asks for nothing that is known here');
  }
}

/** All together have less than a megabyte, and a call may ask for most of them. */
const encoded = onceFor((file: FileDescriptorProto) => toBinary(FileDescriptorProtoSchema, file));

/** The file first, then what it imports. */
function filesAnswer(file: DescFile | undefined, asked: string, sent: Set<string>): ReflectionAnswer {
  if (file === undefined) return notFound(asked);
  const fileDescriptorProto: Uint8Array[] = [];
  const collect = ({ proto, dependencies }: DescFile): void => {
    sent.add(proto.name);
    fileDescriptorProto.push(encoded(proto));
    for (const dependency of dependencies) if (!sent.has(dependency.proto.name)) collect(dependency);
  };
  collect(file);
  return { case: 'fileDescriptorResponse', value: { fileDescriptorProto } };
}

const notFound = (what: string): ReflectionAnswer => errorAnswer(Code.NOT_FOUND, `${what} is not known here`);

const errorAnswer = (errorCode: number, errorMessage: string): ReflectionAnswer => ({
  case: 'errorResponse',
  value: { errorCode, errorMessage },
});

/** The descriptors of the Envoy API, and of what is served beside it. */
const descriptorsOf = (files: readonly DescFile[]): FileRegistry =>
  createFileRegistry(envoyRegistry(), ...files.map(withImports));

/** Of a type, a service, an extension, or what one of them has. */
function fileOfSymbol(descriptors: FileRegistry, symbol: string): DescFile | undefined {
  const owner = symbol.slice(0, Math.max(0, symbol.lastIndexOf('.')));
  return (descriptors.get(symbol) ?? descriptors.get(owner))?.file;
}

const withImports = ({ proto, dependencies }: DescFile): FileRegistry =>
  createFileRegistry(proto, (name) => dependencies.find((file) => file.proto.name === name));
