import type { DescField, DescMessage, DescMethod } from '@bufbuild/protobuf';
import type { FileDescriptorSet } from '@bufbuild/protobuf/wkt';
import { assertNever } from '../../src/model/result.ts';

/** Numbers of fields in descriptor.proto, of which the paths of SourceCodeInfo are made. */
const messages = 4;
const services = 6;
const fields = 2;
const methods = 2;
const nested = 3;

/** The comments that stand before what they describe. */
export class Comments {
  readonly #files: ReadonlyMap<string, ReadonlyMap<string, string>>;

  constructor({ file }: FileDescriptorSet) {
    this.#files = new Map(
      file.map(({ name, sourceCodeInfo }) => [
        name,
        new Map(
          (sourceCodeInfo?.location ?? []).map(({ path, leadingComments }) => [
            path.join('.'),
            leadingComments.trim().replaceAll(/\s+/g, ' '),
          ]),
        ),
      ]),
    );
  }

  of(described: DescField | DescMessage | DescMethod): string {
    const file = described.kind === 'message' ? described.file : described.parent.file;
    return this.#files.get(file.proto.name)?.get(pathOf(described).join('.')) ?? '';
  }
}

function pathOf(described: DescField | DescMessage | DescMethod): readonly number[] {
  switch (described.kind) {
    case 'message':
      return messagePath(described);
    case 'field':
      return [...messagePath(described.parent), fields, described.parent.fields.indexOf(described)];
    case 'rpc':
      return [
        services,
        described.parent.file.services.indexOf(described.parent),
        methods,
        described.parent.methods.indexOf(described),
      ];
    default:
      return assertNever(described);
  }
}

function messagePath(message: DescMessage): readonly number[] {
  if (message.parent === undefined) return [messages, message.file.messages.indexOf(message)];
  return [...messagePath(message.parent), nested, message.parent.nestedMessages.indexOf(message)];
}
