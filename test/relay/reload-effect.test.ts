import { Code, ConnectError } from '@connectrpc/connect';
import { expect } from 'chai';
import { ClientRules } from '../../src/clients.ts';
import type { Config } from '../../src/config/config.ts';
import { parseConfig } from '../../src/config/load.ts';
import { systemClock } from '../../src/model/clock.ts';
import { TimeSlices } from '../../src/model/time-slices.ts';
import {
  effectSummary,
  inForce,
  mergeEffects,
  needsRestart,
  reloadPreview,
} from '../../src/reload-effect.ts';
import { cpuSeconds } from '../support/cpu.ts';
import { InMemoryRelay, node, put, type, when } from '../support/in-memory-relay.ts';

/** Waits for the answer. */
const somebody = new AbortController().signal;

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
  return new TimeSlices(systemClock).run((pace) => preview(textOf(...fields), pace, somebody));
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

describe('the effect of a reload, where another process reads the files', () => {
  const withKey = (key: string): string =>
    JSON.stringify({
      upstreams: [{ name: 'files', filesystem: { path: '/nowhere' } }],
      parameters: [{ key, from: 'node.metadata.env' }],
    });

  /** 30 clients, each with 50 resources of its own, and rules that give each other parameters. */
  function start() {
    const config = configOf(withKey('env'));
    const rules = new ClientRules(config);
    const lab = new InMemoryRelay({ clients: () => rules });
    const envs = Array.from({ length: 30 }, (_, index) => `env-${index}`);
    for (const env of envs) lab.delta().send('cds', { node: node({ env }) });
    const names = Array.from({ length: 50 }, (_, index) => `name-${index}`);
    const puts = envs.flatMap((env) =>
      names.map((name) => put(type('cds'), name, env, { constraints: when({ env }) })),
    );
    lab.says({ type: type('cds'), puts });
    const asked: number[] = [];
    const gone = new AbortController();
    const effect = (answer: () => boolean) => {
      const preview = reloadPreview({ relay: lab.relay, config }, (sought) => {
        asked.push(sought.length);
        return Promise.resolve(sought.map(answer));
      });
      return new TimeSlices(systemClock).run((pace) => preview(withKey('other'), pace, gone.signal));
    };
    return { asked, gone, effect };
  }

  it('it is asked for many clients at once, and for a thousand names at most', async () => {
    const { asked, effect } = start();
    const { streams, losing, clients } = await effect(() => false);
    expect(asked.reduce((sum, names) => sum + names, 0)).to.equal(1500);
    expect(asked).to.have.length(2);
    expect(Math.max(...asked)).to.be.at.most(1000);
    expect([streams, losing]).to.deep.equal([30, 30]);
    expect(clients.map(({ lostTotal }) => lostTotal)).to.deep.equal(Array.from(clients, () => 50));
    expect((await start().effect(() => true)).losing, 'the files have all of it').to.equal(0);
  });

  it('nothing more is asked once nobody waits for the answer', async () => {
    const { asked, gone, effect } = start();
    const [outcome] = await Promise.allSettled([
      effect(() => {
        gone.abort();
        return false;
      }),
    ]);
    expect(outcome?.status === 'rejected' && ConnectError.from(outcome.reason).code).to.equal(Code.Canceled);
    expect(asked).to.have.length(1);
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
  const { streams } = await new TimeSlices(systemClock).run((pace) => preview(text, pace, somebody));
  expect(cpuSeconds() - before).to.be.below(3);
  expect(streams).to.equal(1);
});

describe('a configuration that is wrong', () => {
  it('is answered with a hundred problems, and how many more there are', async () => {
    const lab = new InMemoryRelay();
    const preview = reloadPreview({ relay: lab.relay, config: configOf(textOf()) });
    const text = `{ "${'x'.repeat(5000)}": 1, "upstreams": [${'{},'.repeat(100)}] }`;
    const [error] = await Promise.allSettled([
      new TimeSlices(systemClock).run((pace) => preview(text, pace, somebody)),
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
