import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { publishedSchema } from '../../src/config/json-schema.ts';

const published: unknown = JSON.parse(
  readFileSync(new URL('../../config.schema.json', import.meta.url), 'utf8'),
);
const sample: unknown = parse(readFileSync(new URL('sample.yaml', import.meta.url), 'utf8'));

/** The published schema as an editor applies it. */
const accepts = (value: unknown): boolean => z.fromJSONSchema(publishedSchema()).safeParse(value).success;

describe('config.schema.json', () => {
  it('is what the code accepts (else: node scripts/config-schema.ts)', () => {
    expect(published).to.deep.equal(JSON.parse(JSON.stringify(publishedSchema())));
  });

  it("accepts the contract's sample", () => {
    expect(accepts(sample)).to.equal(true);
  });

  it('refuses an unknown key, a wrong type and a bad duration', () => {
    const upstreams = [{ name: 'a', filesystem: { path: 'x' } }];
    expect(accepts({ upstreams })).to.equal(true);
    expect(accepts({ upstreams, drain_timeout: '5s' })).to.equal(true);
    expect(accepts({ upstreams, drain_timeout: 0 })).to.equal(true);
    expect(accepts({ upstreams, drain_timeout: 5 })).to.equal(false);
    expect(accepts({ upstreams, watchdog: { timeout: 0 } })).to.equal(false);
    expect(accepts({ upstreams, drain_timeout: 'soon' })).to.equal(false);
    expect(accepts({ upstreams, workers: 'two' })).to.equal(false);
    expect(accepts({ upstreams, xds: { adress: 'x' } })).to.equal(false);
    expect(accepts({})).to.equal(false);
  });

  it('accepts references to the environment for numbers, booleans and closed sets', () => {
    const upstreams = [
      { name: 'a', ads: { endpoints: ['${CP}'], protocol: '${PROTOCOL}', connect_timeout: '${T}' } },
    ];
    expect(accepts({ upstreams, workers: '${WORKERS}' })).to.equal(true);
    expect(accepts({ upstreams, history: '${HISTORY}' })).to.equal(true);
    expect(accepts({ upstreams, history: 'none' })).to.equal(false);
  });

  it('describes every key that is not plain from its name', () => {
    const text = JSON.stringify(published);
    for (const key of [
      'variants',
      'resource_timeout',
      'sotw_versions',
      'idle_ttl',
      'trusted',
      'drain_timeout',
    ]) {
      expect(text).to.match(new RegExp(`"${key}":\\{[^{}]*"description":`));
    }
  });
});
