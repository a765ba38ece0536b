import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { parse, stringify } from 'yaml';
import { z } from 'zod';
import { parseConfig } from '../../src/config/load.ts';
import { contradictions } from '../../src/config/warnings.ts';

const chart = join(import.meta.dirname, '../../deploy/chart');
const kustomize = join(import.meta.dirname, '../../deploy/kustomize');
const environment = { POD_NAME: 'relay-1' };
const valuesSchema = z.looseObject({ config: z.record(z.string(), z.json()).default({}) });
const read = (path: string): z.infer<typeof valuesSchema> =>
  valuesSchema.parse(parse(readFileSync(path, 'utf8')));

/** As Helm merges values: mappings are merged, everything else is replaced. */
function merge(base: z.core.util.JSONType, over: z.core.util.JSONType): z.core.util.JSONType {
  const isMapping = (value: unknown): value is Record<string, z.core.util.JSONType> =>
    typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isMapping(base) || !isMapping(over)) return over;
  const merged = new Map(Object.entries(base));
  for (const [key, value] of Object.entries(over)) {
    const known = merged.get(key);
    merged.set(key, known === undefined ? value : merge(known, value));
  }
  return Object.fromEntries(merged);
}

describe('deploy/chart and deploy/kustomize', () => {
  const defaults = read(join(chart, 'values.yaml'));

  for (const file of globSync('ci/*-values.yaml', { cwd: chart }).toSorted()) {
    it(`${basename(file)}: the relay accepts its configuration`, () => {
      const config = merge(defaults.config, read(join(chart, file)).config);
      const parsed = parseConfig(stringify(config), 'relay.yaml', environment);
      if (!parsed.ok) throw new Error(JSON.stringify(parsed.error));
      // What a rollout leaves to somebody is meant.
      const odd = contradictions(parsed.value).filter(({ path }) => !path.startsWith('rollout'));
      expect(odd).to.deep.equal([]);
    });
  }

  for (const file of globSync('*/relay.yaml', { cwd: kustomize }).toSorted()) {
    it(`kustomize ${file}: the relay accepts it`, () => {
      const text = readFileSync(join(kustomize, file), 'utf8');
      const parsed = parseConfig(text, file, environment);
      expect(parsed.ok ? [] : parsed.error).to.deep.equal([]);
    });
  }

  for (const file of ['alerts.yaml', 'recording-rules.yaml', 'dashboard.json']) {
    it(`has ${file} as it is in deploy/observability (else: copy it to deploy/chart/files)`, () => {
      const read = (path: string): string => readFileSync(join(chart, path), 'utf8');
      expect(read(`files/${file}`)).to.equal(read(`../observability/${file}`));
    });
  }

  it('drops no metric in its examples that an alert or the dashboard reads', () => {
    const files = globSync('files/*', { cwd: chart }).map((file) => readFileSync(join(chart, file), 'utf8'));
    const read = new Set(files.join(' ').match(/\b(?:distributary|nodejs|process)_[a-z_0-9]+/g));
    expect(read).to.include('nodejs_eventloop_lag_p99_seconds');
    const dropped = globSync('ci/*-values.yaml', { cwd: chart }).flatMap((file) =>
      Array.from(
        readFileSync(join(chart, file), 'utf8').matchAll(/regex: "([^"]+)",\s*action: drop/g),
        ([, regex = '']) => new RegExp(`^(?:${regex})$`),
      ),
    );
    expect(dropped).not.to.be.empty;
    expect([...read].filter((name) => dropped.some((one) => one.test(name)))).to.deep.equal([]);
  });

  it('and its notes and document show how a relay is asked in its pod', () => {
    for (const path of ['templates/NOTES.txt', '../../docs/kubernetes.md'])
      expect(readFileSync(join(chart, path), 'utf8')).to.match(/kubectl .*exec .* -- distributary status/);
  });

  it('explains each key of its values in values.schema.json', () => {
    const schema = z
      .looseObject({ properties: z.record(z.string(), z.json()) })
      .parse(JSON.parse(readFileSync(join(chart, 'values.schema.json'), 'utf8')));
    expect(Object.keys(schema.properties).filter((key) => key !== 'global')).to.have.members(
      Object.keys(defaults),
    );
  });
});
