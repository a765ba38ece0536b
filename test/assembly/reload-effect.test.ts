import { expect } from 'chai';
import { ClientRules } from '../../src/assembly/clients.ts';
import {
  effectSummary,
  inForce,
  mergeEffects,
  needsRestart,
  reloadPreview,
} from '../../src/assembly/reload-effect.ts';
import type { Config } from '../../src/config/config.ts';
import { parseConfig } from '../../src/config/load.ts';
import { systemClock } from '../../src/model/clock.ts';
import { TimeSlices } from '../../src/model/time-slices.ts';
import { cpuSeconds } from '../support/cpu.ts';
import { InMemoryRelay, node } from '../support/in-memory-relay.ts';

const textOf = (...fields: readonly string[]): string =>
  JSON.stringify({
    node: { id: 'relay', cluster: 'relays' },
    upstreams: [{ name: 'files', filesystem: { path: '/nowhere' } }],
    parameters: fields.map((field) => ({ key: field.replace(/ment$/, ''), from: `node.metadata.${field}` })),
  });

function configOf(text: string): Config {
  const config = parseConfig(text, 'configuration', {});
  if (!config.ok) throw new Error(config.error.map(({ message }) => message).join('\n'));
  return config.value;
}

/** Of two clients, while the rules read `env`. */
async function effectOf(...fields: readonly string[]) {
  const config = configOf(textOf('env'));
  const rules = new ClientRules(config);
  const lab = new InMemoryRelay({ clients: () => rules });
  for (const env of ['prod', 'test']) lab.delta().send('lds', { node: node({ env, environ: env }) });
  const preview = reloadPreview({ relay: lab.relay, config });
  return new TimeSlices(systemClock).run((pace) => preview(textOf(...fields), pace));
}

describe('the effect of a reload', () => {
  it('is known while the new rules read what the old ones did', async () => {
    for (const fields of [['env'], []]) {
      const effect = await effectOf(...fields);
      expect(effect).to.deep.include({ reconnecting: 0, unreadRules: [] });
      expect(effectSummary(effect)).to.deep.include({ streams_losing: 0, streams_reconnecting: 0, lost: [] });
    }
  });

  it('is unknown of clients of whose node the new rules need more: the rule is named, and nothing is said to be 0', async () => {
    const effect = await effectOf('env', 'environment');
    const rule = { key: 'environ', from: 'node.metadata.environment', streams: 2 };
    expect(effect).to.deep.include({ streams: 2, reconnecting: 2, unreadRules: [rule] });
    const both = mergeEffects([effect, effect]);
    expect(both).to.deep.include({ reconnecting: 4, unreadRules: [{ ...rule, streams: 4 }] });
    expect(JSON.parse(JSON.stringify(effectSummary(both)))).to.deep.equal({
      upstreams: {},
      streams: 4,
      streams_reconnecting: 4,
      unread_rules: ['environ reads node.metadata.environment: 4 streams'],
    });
  });
});

it('the effect of trusted rules for thousands of authorities takes time by their number, not by its square', async () => {
  const authorities = Array.from({ length: 15_000 }, (_, index) => `a${index}`);
  const rule = `{ key: a, from: node.id, trusted: true, authorities: [${authorities.join(',')}] }`;
  const text = `upstreams: [{ name: files, filesystem: { path: /nowhere } }]\nparameters: [&a ${rule}${',*a'.repeat(5)}]\n`;
  const config = configOf(textOf());
  const lab = new InMemoryRelay({ clients: () => new ClientRules(config) });
  lab.delta().send('lds', { node: node({}) });
  const preview = reloadPreview({ relay: lab.relay, config });
  const before = cpuSeconds();
  const { streams } = await new TimeSlices(systemClock).run((pace) => preview(text, pace));
  expect(cpuSeconds() - before).to.be.below(3);
  expect(streams).to.equal(1);
});

describe('a configuration that is wrong', () => {
  it('is answered with a hundred problems, and how many more there are', async () => {
    const lab = new InMemoryRelay();
    const preview = reloadPreview({ relay: lab.relay, config: configOf(textOf()) });
    const text = `{ "${'x'.repeat(5000)}": 1, "upstreams": [${'{},'.repeat(100)}] }`;
    const [error] = await Promise.allSettled([
      new TimeSlices(systemClock).run((pace) => preview(text, pace)),
    ]);
    const said = error?.status === 'rejected' ? String(error.reason) : '';
    expect(said.split('\n')).to.have.length(101);
    expect(said.split('\n').at(-1)).to.equal('and 101 more problems');
    expect(said).to.have.length.below(20_000);
  });
});

describe('the configuration in force after a reload', () => {
  it('has every key that needs a restart as it was', () => {
    const started = configOf(textOf());
    const tls = { certificate: 'c', private_key: 'k' };
    const at = (port: number) => ({ address: `127.0.0.1:${port}` });
    const changed = configOf(
      JSON.stringify({
        ...{ node: { id: 'another' }, workers: 2, watchdog: { timeout: '77s' } },
        tracing: { otlp_endpoint: 'http://127.0.0.1:4318' },
        xds: { address: 'unix:/elsewhere', unix_mode: '0600', tls },
        ...{ rest: at(1), admin: { ...at(2), tls }, metrics: at(3) },
        limits: { max_request_bytes: 77_000, max_poll_bytes: 77_000 },
        cache: { idle_ttl: '77s', persistence: { path: '/elsewhere' } },
        upstreams: [{ name: 'files', filesystem: { path: '/nowhere' } }],
      }),
    );
    expect(needsRestart(started, changed)).to.have.length(15);
    expect(needsRestart(started, inForce(started, changed))).to.deep.equal([]);
  });
});
