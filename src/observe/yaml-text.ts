import { Document, Scalar, visit } from 'yaml';

/** What must not reach a terminal as it is, line ends and tabs apart: YAML has ways to show these. */
const unsafe = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u;

/** YAML for people, which is read back as the same value: unsafe characters are escapes in double quotes. */
export function yamlText(value: unknown): string {
  const document = new Document(value, { aliasDuplicateObjects: false });
  visit(document, {
    Scalar: (_, node) => {
      if (typeof node.value === 'string' && unsafe.test(node.value)) node.type = Scalar.QUOTE_DOUBLE;
    },
  });
  return printableYaml(
    document.toString({ lineWidth: 0, doubleQuotedMinMultiLineLength: Number.MAX_SAFE_INTEGER }),
  );
}

/** YAML that somebody else wrote, with such characters as escapes. */
export function printableYaml(text: string): string {
  return text.replaceAll(new RegExp(unsafe.source, 'gu'), escaped);
}

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  const hex = code.toString(16);
  return code > 0xffff ? `\\U${hex.padStart(8, '0')}` : `\\u${hex.padStart(4, '0')}`;
}
