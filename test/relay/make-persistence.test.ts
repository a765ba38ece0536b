import { expect } from 'chai';
import { Staleness } from '../../src/admin/staleness.ts';
import { whyNotRestored } from '../../src/cache/persistence/persistence.ts';
import { identities } from '../../src/distributary.ts';
import type { UpstreamState } from '../../src/model/upstream.ts';
import { configOf } from '../config/support.ts';
import { ScriptedUpstream } from '../support/in-memory-relay.ts';

const base = `
node: { id: a, cluster: relays }
parameters: [{ key: env, from: node.metadata.env, default: prod }]
upstreams:
  - { name: files, types: [sds], filesystem: { path: ./resources } }
  - { name: central, types: [cds, eds], ads: { endpoints: ["cp-1:1", "cp-2:1"] } }
  - { name: native, ads: { endpoints: ["tp2:1"], variants: NATIVE } }
`;

/** The upstreams of which something is restored after this change of the configuration. */
function kept(change: (text: string) => string): string[] {
  const before = new Map(identities(configOf(base)).map((one) => [one.name, one]));
  return identities(configOf(change(base)))
    .filter((now) => whyNotRestored(before.get(now.name), now) === undefined)
    .map(({ name }) => name);
}

describe('whose content is restored', () => {
  const rows: readonly (readonly [string, string, string, readonly string[]])[] = [
    ['nothing has changed', 'nothing', '', ['files', 'central', 'native']],
    ['another replica starts in its place', 'id: a', 'id: b', ['files', 'central', 'native']],
    ['one endpoint of several is another', '"cp-1:1", ', '"cp-9:1", ', ['files', 'central', 'native']],
    ['all endpoints are others', '["cp-1:1", "cp-2:1"]', '["cp-8:1"]', ['files', 'native']],
    ['the files are elsewhere', './resources', './others', ['central', 'native']],
    ['an upstream has another name', 'name: native', 'name: other', ['files', 'central']],
    [
      'the kind is another',
      'ads: { endpoints: ["tp2:1"], variants: NATIVE }',
      'filesystem: { path: x }',
      ['files', 'central'],
    ],
    ['variants are asked for otherwise', ', variants: NATIVE', '', ['files', 'central']],
    [
      'clients get their parameters otherwise',
      'default: prod',
      'default: dev',
      ['files', 'central', 'native'],
    ],
    ['the rules have another key: stamps would be wrong', 'key: env', 'key: zone', ['files', 'native']],
    ['a parameter is shown elsewhere', 'default: prod', 'to: node.metadata.e', ['files', 'native']],
    ['what one before claims is left to others', 'types: [sds], ', 'types: [sds, eds], ', []],
    [
      'one before has no ADS: types without a service are left to others',
      '["cp-1:1", "cp-2:1"]',
      '["cp-1:1", "cp-2:1"], services: PER_TYPE',
      ['files'],
    ],
    ['the relay is somebody else to control planes', 'cluster: relays', 'cluster: other', ['files']],
  ];
  for (const [title, from, to, names] of rows) {
    it(title, () => {
      expect(kept((text) => text.replace(from, to))).to.deep.equal(names);
    });
  }
});

describe('since when something may be out of date, over a restart', () => {
  class Central extends ScriptedUpstream {
    now: Partial<UpstreamState> = { everConnected: false, staleSince: 5000 };
    override state(): UpstreamState {
      return { ...super.state(), ...this.now };
    }
  }

  it('is the time before the restart until the upstream was current once', () => {
    const upstream = new Central();
    const staleness = new Staleness(() => [upstream]);
    expect(staleness.since(upstream)).to.equal(5000);
    expect(staleness.hasServed(upstream)).to.equal(false);
    staleness.restore(new Map([['script', 3000]]));
    expect(staleness.hasServed(upstream)).to.equal(true);
    expect(staleness.sinceOf('script')).to.equal(3000);
    upstream.now = { everConnected: false, staleSince: undefined };
    staleness.observe();
    expect(staleness.since(upstream)).to.equal(3000); // files that are not scanned yet
    upstream.now = { everConnected: true, staleSince: undefined };
    staleness.observe();
    expect(staleness.since(upstream)).to.equal(undefined);
    upstream.now = { everConnected: true, staleSince: 9000 };
    expect(staleness.since(upstream)).to.equal(9000);
  });
});
