/** What `npm run fuzz` found once, each by a name that says what it did. */
export const known: readonly { readonly name: string; readonly subject: string; readonly input: Buffer }[] = [
  {
    name: 'a list of thousands of wrong entries took 0.2 ms each, more the longer it was',
    subject: 'configuration',
    input: Buffer.from(`upstreams: [${'a,'.repeat(3000)}]`),
  },
  {
    name: 'metadata of a resource that cannot be decoded went on to clients, who refused the whole response',
    subject: 'delta responses',
    input: Buffer.from(
      'CgExEkQSPwozdHlwZS5nb29nbGVhcGlzLmNvbS9lbnZveS5jb25maWcuY2x1c3Rlci52My5DbHVzdGVyEggKAWEaA29uZRoBYRJHSgE3Ej8KM3R5cGUuZ29vZ2xlYXBpcy5jb20vZW52b3kuY29uZmlnLmNsdXN0ZXIudjMuQ2x1c3RlchIICgFiGgN0d28aAWIiM3R5cGUuZ29vZ2xlYXBpcy5jb20vZW52b3kuY29uZmlnLmNsdXN0ZXIudjMuQ2x1c3RlcioBMQ==',
      'base64',
    ),
  },
];
