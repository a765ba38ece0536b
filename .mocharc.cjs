module.exports = {
  extension: ['test.ts'],
  recursive: true,
  reporter: './test/support/reporter.ts',
  // Of what hangs: other processes may have the machine's cores for a while.
  timeout: 120_000,
  'node-option': ['disable-warning=ExperimentalWarning'],
  require: ['./test/support/compile-cache.ts'],
};
