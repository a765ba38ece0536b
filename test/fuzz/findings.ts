/** What `npm run fuzz` found once, each by a name that says what it did. */
export const known: readonly { readonly name: string; readonly subject: string; readonly input: Buffer }[] = [
  {
    name: 'a list of thousands of wrong entries took 0.2 ms each, more the longer it was',
    subject: 'configuration',
    input: Buffer.from(`upstreams: [${'a,'.repeat(3000)}]`),
  },
];
