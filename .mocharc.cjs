module.exports = {
  extension: ['test.ts'],
  recursive: true,
  reporter: './test/support/reporter.ts',
  timeout: 10_000,
  'node-option': ['disable-warning=ExperimentalWarning'],
  require: ['./test/support/compile-cache.ts', './test/support/retries.ts'],
};
