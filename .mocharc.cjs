module.exports = {
  extension: ['test.ts'],
  recursive: true,
  reporter: './test/support/reporter.ts',
  timeout: 10_000,
  'node-option': ['disable-warning=ExperimentalWarning'],
  // Real processes on a shared machine get a second try there, which the reporter tells of.
  // oxlint-disable-next-line typescript/no-unsafe-member-access -- plain CommonJS, without Node's types
  retries: process.env['CI'] === 'true' ? 1 : 0,
};
