import { type DescField, ScalarType } from '@bufbuild/protobuf';
import { assertNever } from '../../src/model/result.ts';
import { code } from './markdown.ts';

/** The type of a field as .proto files have it, with a link if it is a message of ours. */
export function fieldType(field: DescField): string {
  switch (field.fieldKind) {
    case 'scalar':
      return scalar(field.scalar);
    case 'enum':
      return code(field.enum.name);
    case 'message':
      return linked(field.message);
    case 'list':
      return `list of ${elementOf(field)}`;
    case 'map':
      return `map of ${scalar(field.mapKey)} to ${elementOf(field)}`;
    default:
      return assertNever(field);
  }
}

function elementOf(field: DescField & { readonly fieldKind: 'list' | 'map' }): string {
  if (field.message !== undefined) return linked(field.message);
  return field.scalar === undefined ? code(field.enum?.name ?? '') : scalar(field.scalar);
}

const scalar = (type: ScalarType): string => code(ScalarType[type].toLowerCase());

function linked({ typeName, name }: { readonly typeName: string; readonly name: string }): string {
  return typeName.startsWith('distributary.') ? `[${name}](#${name.toLowerCase()})` : code(typeName);
}
