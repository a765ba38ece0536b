export interface MarkdownBlock {
  readonly kind: 'h2' | 'h3' | 'p' | 'ul' | 'ol' | 'pre' | 'sh';
  readonly lines: readonly string[];
  /** Of an ordered list: code between two items makes two lists. */
  readonly start?: number;
}

/** As much Markdown as the runbooks have: headings, paragraphs, lists, and blocks of code, in lists too. Pure. */
export function blocksOf(text: string): readonly MarkdownBlock[] {
  return text.split(/\n{2,}/).flatMap((part): MarkdownBlock[] => {
    const lines = part.split('\n').filter((line) => line.trim() !== '');
    const [first] = lines;
    if (first === undefined) return [];
    const [, indent, info = ''] = /^( *)```(.*)$/.exec(first) ?? [];
    if (indent !== undefined) {
      const code = lines.slice(1, -1).map((line) => line.slice(indent.length));
      return [{ kind: info === 'sh' ? 'sh' : 'pre', lines: code }];
    }
    const [, marks = '', title = ''] = /^(#+) (.*)$/.exec(first) ?? [];
    if (marks !== '') return [{ kind: marks.length === 1 ? 'h2' : 'h3', lines: [title] }];
    if (first.startsWith('- ')) return [{ kind: 'ul', lines: lines.map((line) => line.slice(2)) }];
    const [, number] = /^(\d+)\. /.exec(first) ?? [];
    if (number !== undefined)
      return [{ kind: 'ol', start: Number(number), lines: lines.map((line) => line.replace(/^\d+\. /, '')) }];
    return [{ kind: 'p', lines: [lines.join(' ')] }];
  });
}
