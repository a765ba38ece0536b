import { type DescMessage, type JsonValue, type MessageShape, toJson } from '@bufbuild/protobuf';
import { printableJson } from '../model/printable.ts';

/** As the admin listener itself writes JSON. */
const jsonOptions = { alwaysEmitImplicit: true, useProtoFieldName: true };

/** A message of the admin RPCs as a JSON value. */
export function messageJson<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): JsonValue {
  return toJson(schema, message, jsonOptions);
}

/** A message of the admin RPCs as JSON for people and scripts. `indent` 0: on one line. */
export function jsonText<Desc extends DescMessage>(
  schema: Desc,
  message: MessageShape<Desc>,
  indent = 2,
): string {
  return printableJson(JSON.stringify(messageJson(schema, message), null, indent));
}
