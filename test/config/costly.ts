/** What the admin listener reads of a request. */
const mostBytes = 128 * 1024;

const upstreams = 'upstreams: [{name: a, filesystem: {path: /x}}]\n';

/** As often as it fits: `piece` between `start` and `end`. */
function filled(start: string, piece: string | ((index: number) => string), end: string): string {
  let text = start;
  for (let index = 0; ; index++) {
    const next = typeof piece === 'string' ? piece : piece(index);
    // JSON has the line ends and quotation marks of the text as two characters.
    if (text.length + next.length + end.length > mostBytes - 256) return `${text}${end}\n`;
    text += next;
  }
}

const word = (index: number): string => `w${index.toString(36).padStart(3, '0')}`;
const words = (count: number): string => Array.from({ length: count }, (_, index) => word(index)).join(', ');
const long = 'x'.repeat(60_000);

/** Configurations of 128 KiB whose checks could take much longer than others, by what is much in them. */
export const costlyConfigurations: ReadonlyMap<string, string> = new Map([
  ['rules', filled(`${upstreams}parameters: [`, (index) => `{key: ${word(index)},from: node.id},`, ']')],
  ['rules without a key', filled(`${upstreams}parameters: [`, '{},', ']')],
  [
    'rules for many authorities in one place',
    `${upstreams}parameters: [${['a', 'b']
      .map((key) => {
        const authorities = Array.from({ length: 300 }, (_, index) => key + index).join(', ');
        const rule = `{key: ${key}, from: node.id, to: node.cluster, authorities: [${authorities}]}`;
        return `&${key} ${rule}${`,*${key}`.repeat(150)}`;
      })
      .join(', ')}]\n`,
  ],
  [
    'long places',
    `${upstreams}parameters: [${['a', 'b']
      .map((key) => `&${key} {key: ${key}, from: node.id, to: node.metadata${'.a'.repeat(25_000)}.${key}}`)
      .join(', ')}${',*a,*b'.repeat(499)}]\n`,
  ],
  [
    'keys in templates',
    filled(
      `${upstreams}parameters: [{key: b,from: node.id},&a {key: a,from: node.id,to: "node.metadata.a=${Array.from({ length: 10_000 }, (_, index) => `$\${${index}}`).join('')}"}${',*a'.repeat(500)}]\n#`,
      '#',
      '',
    ),
  ],
  [
    'patterns of many repetitions',
    `${upstreams}parameters: [&a {key: a, from: node.id, pattern: '\\pL{1000}'}${',*a'.repeat(999)}]\n`,
  ],
  [
    'a pattern of large classes',
    filled(`${upstreams}parameters: [{key: a, from: node.id, pattern: '(?i)`, '[b-\u{1E942}]', `'}]`),
  ],
  [
    'references to the environment',
    filled(`${upstreams}xds: {authorization: {rules: [&a {allow: "\${A:-true}"}`, ',*a', ']}}'),
  ],
  [
    'canaries by rules of one key',
    filled(
      `${upstreams}parameters: [&a {key: a,from: node.id,values: [b]}${',*a'.repeat(10_000)}]\nrollout: {canary: {match: [&b {key: a,value: c}`,
      ',*b',
      ']}}',
    ),
  ],
  [
    'canaries by values that no rule has',
    filled(
      `${upstreams}parameters: [{key: a,from: node.id,values: [${words(8000)}]}]\nrollout: {canary: {match: [&a {key: a,value: x}`,
      ',*a',
      ']}}',
    ),
  ],
  [
    'canaries by keys that no rule has',
    filled(
      `${upstreams}parameters: [${Array.from({ length: 1000 }, (_, index) => `{key: ${word(index)},from: node.id}`).join(',')}]\nrollout: {canary: {match: [&a {key: a,value: x}`,
      ',*a',
      ']}}',
    ),
  ],
  ['upstreams', filled('upstreams: [', (index) => `{name: ${word(index)}},`, ']')],
  ['long keys', filled(`${upstreams}node: {metadata: {a: [&a {${long}: 1}`, ',*a', ']}}')],
  ['values below a long key', filled(`${upstreams}node: {metadata: {${long}: [`, '1,', ']}}')],
  ['long values', filled(`upstreams: [{name: a, ads: {endpoints: [&a ${long}`, ',*a', ']}}]')],
  [
    'words that are no types',
    filled(`${upstreams}xds: {legacy_wildcard: [&a ${'x'.repeat(64)}`, ',*a', ']}'),
  ],
  [
    'unknown keys',
    filled(
      `${upstreams}parameters: [&a {${Array.from({ length: 500 }, (_, index) => `${word(index)}${'x'.repeat(60)}: 1`).join(',')}}`,
      ',*a',
      ']',
    ),
  ],
]);
