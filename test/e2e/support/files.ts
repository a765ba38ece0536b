import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { DiscoveryResponseSchema } from '../../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { type } from '../../support/in-memory-relay.ts';
import { type TemporaryDirectory, temporaryDirectory } from './paths.ts';

/** A directory for an upstream of kind filesystem. */
export class ResourceFiles implements Disposable {
  readonly #directory: TemporaryDirectory = temporaryDirectory();
  /** As the configuration has it. */
  readonly upstream = { name: 'files', filesystem: { path: this.#directory.path } };

  /** A file with everything of a type: name to content. It is replaced by a move, as a deployment would. */
  write(short: string, resources: ReadonlyMap<string, string>): void {
    const url = type(short);
    const message = create(DiscoveryResponseSchema, {
      typeUrl: url,
      resources: Array.from(resources, ([name, content]) =>
        create(AnySchema, { typeUrl: url, value: body(name, content) }),
      ),
    });
    this.writeText(`${short}.pb`, toBinary(DiscoveryResponseSchema, message));
  }

  writeText(name: string, content: string | Uint8Array): void {
    const path = join(this.#directory.path, name);
    writeFileSync(`${path}.new`, content);
    renameSync(`${path}.new`, path);
  }

  remove(name: string): void {
    rmSync(join(this.#directory.path, name), { force: true });
  }

  [Symbol.dispose](): void {
    this.#directory[Symbol.dispose]();
  }
}

/** So many resources, with names as long as they are in the field. */
export function manyResources(count: number): ReadonlyMap<string, string> {
  return new Map(
    Array.from({ length: count }, (_, index) => [
      `outbound-8080-service-${index}-default-cluster-local`,
      'x',
    ]),
  );
}

/** A message with the name in field 1, and the content in a field that no type has. */
function body(name: string, content: string): Uint8Array {
  const writer = new BinaryWriter();
  writer.tag(1, WireType.LengthDelimited).string(name);
  writer.tag(1023, WireType.LengthDelimited).string(content);
  return writer.finish();
}
