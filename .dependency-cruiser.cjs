/**
 * Who may import whom below src/. The stages of the data path never import a sibling: src/relay.ts joins them, and the
 * commands start it.
 */
const stages = ['upstream', 'cache', 'views', 'downstream', 'releases', 'load', 'config'];
const shared = ['package', 'gen', 'protobuf', 'model', 'wire', 'observe', 'security'];
/** @type {Map<string, readonly string[]>} */
const mayImport = new Map([
  ['package', []],
  ['gen', []],
  ['protobuf', []],
  ['model', ['gen', 'protobuf']],
  ['wire', ['package', 'gen', 'protobuf', 'model']],
  ['observe', ['package', 'gen', 'protobuf', 'model', 'wire']],
  ['security', ['gen', 'protobuf', 'model', 'wire', 'observe']],
  ...stages.map((stage) => [stage, shared]),
]);

const layers = [...mayImport].map(([layer, below]) => ({
  name: `layer-${layer}`,
  comment: `src/${layer}/ imports ${below.length === 0 ? 'nothing but itself' : `only ${below.join(', ')} and itself`}.`,
  severity: 'error',
  from: { path: `^src/${layer}/` },
  to: { path: '^src/', pathNot: `^src/(${[layer, ...below].join('|')})/` },
}));

/** What joins the stages, from the bottom up: each may import whatever is below it. */
const joints = [
  ['relay', 'relay[.]ts$'],
  ['admin', 'admin/'],
  ['distributary', '(?!(relay|main|program)[.])[^/]+[.]ts$'],
  ['workers', 'workers/'],
];
const tops = ['commands/', 'main[.]ts$', 'program[.]ts$'];
const joined = joints.map(([name, path], index) => ({
  name: `below-${name}`,
  comment: `The ${name} knows nothing of what is built on it.`,
  severity: 'error',
  from: { path: `^src/${path}` },
  to: { path: `^src/(${[...joints.slice(index + 1).map(([, above]) => above), ...tops].join('|')})` },
}));

/** @type {import('dependency-cruiser').IConfiguration} */
module.exports = {
  forbidden: [
    ...layers,
    ...joined,
    {
      name: 'main-is-the-top',
      comment: 'Nobody but src/main.ts imports src/program.ts.',
      severity: 'error',
      from: { pathNot: '^src/main[.]ts$' },
      to: { path: '^src/(main|program)[.]ts$' },
    },
    {
      name: 'no-cycle',
      comment: 'Two files that need each other are one idea, or three.',
      severity: 'error',
      from: {},
      to: { circular: true },
    },
    {
      name: 'no-orphan',
      comment: 'Whatever is in src/ is used by something in src/, or it goes.',
      severity: 'error',
      from: { orphan: true, path: '^src/', pathNot: '^src/(gen/|main[.]ts$)' },
      to: {},
    },
    {
      name: 'only-src',
      comment: 'The program does not need its tests, scripts or benchmarks.',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(test|scripts|bench)/' },
    },
    {
      name: 'only-installed-with-it',
      comment: 'src/ runs without development dependencies; traces need some (ADR 20).',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/observe/opentelemetry[.]ts$' },
      to: { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'] },
    },
    {
      name: 'resolvable',
      comment: 'An import that leads nowhere hides whatever it leads to.',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true },
    },
  ],
  options: {
    parser: 'swc', // TypeScript 7 has no compiler API to read modules with
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true, // an `import type` is an import
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'node', 'default', 'types'],
      extensions: ['.ts', '.js', '.json'],
    },
  },
};
