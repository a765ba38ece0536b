import { expect } from 'chai';
import { resourceName, typeUrl } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { type Holder, type Transaction, transaction } from '../../src/model/transaction.ts';
import { CLAIMS_EVERYTHING, claims } from '../../src/upstream/claims.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import { namePatterns } from '../security/name-patterns.ts';
import {
  type DeltaClient,
  InMemoryRelay,
  put,
  resources,
  ScriptedUpstream,
  type SotwClient,
} from '../support/in-memory-relay.ts';
import { told } from '../support/variants.ts';

const cds = typeUrl('type.googleapis.com/envoy.config.cluster.v3.Cluster');
const lds = typeUrl('type.googleapis.com/envoy.config.listener.v3.Listener');
const xdstp = 'xdstp://example.com/envoy.config.cluster.v3.Cluster/a';

describe('upstream/claims', () => {
  it('no claims serve everything', () => {
    for (const name of ['*', 'a', xdstp]) expect(claims(CLAIMS_EVERYTHING, cds, name)).to.equal(true);
  });

  it('authorities claim their xdstp names of every type, and neither plain names nor *', () => {
    const options = { ...CLAIMS_EVERYTHING, authorities: ['example.com'] };
    expect(claims(options, cds, xdstp)).to.equal(true);
    expect(claims(options, cds, xdstp.replace('example.com', 'other.org'))).to.equal(false);
    expect(claims(options, cds, 'example.com')).to.equal(false);
    expect(claims(options, cds, '*')).to.equal(false);
    expect(claims({ ...options, types: [lds] }, cds, xdstp), 'types add').to.equal(true);
    expect(claims({ ...options, types: [lds] }, lds, 'plain')).to.equal(true);
  });

  it('types claim all names of a type, * too', () => {
    const options = { ...CLAIMS_EVERYTHING, types: [cds] };
    expect(claims(options, cds, '*')).to.equal(true);
    expect(claims(options, cds, 'a')).to.equal(true);
    expect(claims(options, lds, 'a')).to.equal(false);
  });

  it('names claim by prefix or exactly, and * only by the pattern *', () => {
    const options = { ...CLAIMS_EVERYTHING, names: namePatterns(['shop-*', 'one']) };
    expect(['shop-', 'shop-a', 'one'].every((name) => claims(options, cds, name))).to.equal(true);
    expect(['shop', 'ones', '*'].some((name) => claims(options, cds, name))).to.equal(false);
    expect(claims({ ...options, names: namePatterns(['*']) }, cds, '*')).to.equal(true);
  });

  it('types and names together must both match', () => {
    const options = { ...CLAIMS_EVERYTHING, types: [cds], names: namePatterns(['shop-*']) };
    expect(claims(options, cds, 'shop-a')).to.equal(true);
    expect(claims(options, lds, 'shop-a')).to.equal(false);
    expect(claims(options, cds, 'a')).to.equal(false);
  });

  it('§6.1 an xdstp name is claimed in every spelling', () => {
    const options = {
      ...CLAIMS_EVERYTHING,
      names: namePatterns([`${xdstp}?zone=1&env=x`, xdstp.replace(/a$/, 'w%65b'), `${xdstp}/%62*`]),
    };
    for (const name of [`${xdstp}?env=x&zone=1`, xdstp.replace(/a$/, 'web'), `${xdstp}/b/c`])
      expect(claims(options, cds, name), name).to.equal(true);
    expect(claims(options, cds, xdstp)).to.equal(false);
  });

  it('§6.3 who claims a glob by name claims its members', () => {
    const options = { ...CLAIMS_EVERYTHING, names: namePatterns([`${xdstp}/*?env=x`]) };
    for (const name of [`${xdstp}/*?env=x`, `${xdstp}/b?env=x`])
      expect(claims(options, cds, name), name).to.equal(true);
    for (const name of ['*', `${xdstp}/b`, `${xdstp}/b/c?env=x`])
      expect(claims(options, cds, name), name).to.equal(false);
  });

  it('a control plane without ADS claims only types that have a service', () => {
    const [vhds, unknown] = [
      typeUrl('type.googleapis.com/envoy.config.route.v3.VirtualHost'),
      typeUrl('type.googleapis.com/some.Extension'),
    ];
    expect(claims({ ...CLAIMS_EVERYTHING, services: 'DELTA' }, vhds, 'a')).to.equal(true);
    expect(claims({ ...CLAIMS_EVERYTHING, services: 'SOTW' }, vhds, 'a')).to.equal(false);
    expect(claims({ ...CLAIMS_EVERYTHING, services: 'DELTA' }, unknown, '*')).to.equal(false);
    expect(claims({ ...CLAIMS_EVERYTHING, services: 'SOTW', authorities: ['x'] }, vhds, 'a')).to.equal(false);
  });
});

/** An upstream that claims names with one of these prefixes, or everything. */
class Claiming extends ScriptedUpstream {
  override readonly name: string;

  constructor(name: string, ...prefixes: string[]) {
    super();
    this.name = name;
    if (prefixes.length > 0)
      this.claimOnly((_, selector) => prefixes.some((prefix) => selector.startsWith(prefix)));
  }

  /** Of the stream for names, or of files and the stream for the wildcard. */
  holder(role: Holder['role']): Holder {
    return { key: `${this.name} ${role}`, upstream: this.name, role };
  }
}

/** As files: it says all that it has, asked or not. */
class Publishing extends Claiming {
  readonly publishesAs = this.holder('wildcard');
}

describe('§6.6 what an upstream says of names that an earlier one serves', () => {
  const front = new Claiming('front', 'shop-');
  const back = new Claiming('back');
  let lab: InMemoryRelay;

  beforeEach(() => {
    for (const upstream of [front, back]) upstream.interests.clear();
    lab = new InMemoryRelay();
    lab.relay.replace([front, back]);
  });

  /** Resolves all that it is asked, unless told otherwise. */
  const says = (
    upstream: Claiming,
    resources: Readonly<Record<string, string>>,
    part: Partial<Transaction> & { readonly role?: Holder['role'] } = {},
  ): void => {
    const { role = 'wildcard', ...more } = part;
    lab.relay.apply(
      transaction({
        holder: upstream.holder(role),
        type: cds,
        puts: Object.entries(resources).map(([name, content]) => put(cds, name, content)),
        resolved: [...upstream.interests],
        ...more,
      }),
    );
    lab.settle();
  };
  const subscribing = (...names: string[]): DeltaClient => {
    const client = lab.delta();
    client.send('cds', { resourceNamesSubscribe: names });
    return client;
  };
  const heard = (client: DeltaClient): string[] => client.received().flatMap(told).toSorted();
  const gone = (name: string) => ({ name: resourceName(name), constraints: UNCONSTRAINED });

  it('a wildcard of a later upstream shows only what is its own, and what files before it have', () => {
    const client = subscribing('*');
    expect([...front.interests], 'a wildcard is of whoever may serve any name').to.deep.equal([]);
    says(back, { 'shop-1': 'back', 'shop-2': 'back', other: 'back' }, { complete: true });
    expect(heard(client)).to.deep.equal(['+other back']);
    says(front, { 'shop-1': 'front' }, { complete: true });
    expect(heard(client)).to.deep.equal(['+shop-1 front']);
    says(back, { 'shop-1': 'again', 'shop-2': 'back', other: 'back' }, { complete: true });
    expect(heard(client)).to.deep.equal([]);
  });

  it('what files have is there for who comes when all have been away for long: they say it once', () => {
    const files = new Publishing('files', 'shop-');
    lab.relay.replace([files, back]);
    const resource = put(cds, 'shop-1', 'files', { aliases: ['shop-alias'] });
    says(files, {}, { puts: [resource], complete: true });
    const hears = (name: string): string[] => {
      const client = subscribing(name);
      if (back.interests.size > 0) says(back, { other: 'back' });
      const all = heard(client);
      client.disconnect();
      lab.settle();
      lab.clock.advance(700_000);
      lab.settle();
      return all;
    };
    for (const when of ['at first', 'later']) {
      expect(hears('*'), when).to.deep.equal(['+other back', '+shop-1 files']);
      for (const name of ['shop-1', 'shop-alias'])
        expect(hears(name), `${name} ${when}`).to.deep.equal(['+shop-1 files']);
    }
    expect(lab.relay.store.variants(cds), 'the other one has ended').to.equal(1);
    expect(lab.evicted).to.deep.equal(['idle 1', 'idle 1']);
  });

  it('a name that the first does not have is absent, whatever later ones have', () => {
    says(back, { 'shop-1': 'back' });
    const client = subscribing('shop-1');
    expect(heard(client), 'unknown').to.deep.equal([]);
    says(front, {});
    expect(heard(client)).to.deep.equal(['-shop-1']);
    says(back, { 'shop-1': 'again' });
    expect(heard(client)).to.deep.equal([]);
  });

  it('neither changes nor keeps what the first has', () => {
    const client = subscribing('shop-1');
    says(front, { 'shop-1': 'front' }, { role: 'named' });
    says(back, { 'shop-1': 'back' });
    expect(heard(client)).to.deep.equal(['+shop-1 front']);
    says(front, {}, { role: 'named', removals: [gone('shop-1')] });
    expect(heard(client)).to.deep.equal(['-shop-1']);
  });

  it('a removal, an error and a heartbeat of it count for nothing', () => {
    const client = subscribing('shop-1', 'shop-2');
    const lives = put(cds, 'shop-2', 'front', { ttlMilliseconds: 1000 });
    says(front, {}, { role: 'named', puts: [lives], resolved: [] });
    expect(heard(client)).to.deep.equal(['+shop-2 front']);
    for (const code of [5, 14]) {
      const error = { ...gone('shop-1'), code, message: 'no', status: encodeStatus(code, 'no') };
      says(back, {}, { resourceErrors: [error], resolved: [] });
    }
    says(back, {}, { removals: [gone('shop-1')], resolved: [] });
    says(back, {}, { heartbeats: [{ ...gone('shop-2'), ttlMilliseconds: 5000 }], resolved: [] });
    expect(client.received(), 'unknown until the first has answered').to.deep.equal([]);
    lab.clock.advance(1000);
    lab.settle();
    expect(heard(client)).to.deep.equal(['-shop-2']);
  });

  it('of siblings of a later upstream, too', () => {
    const client = subscribing('shop-1', 'other');
    const holder: Holder = { ...back.holder('named'), key: 'sibling', restored: true };
    says(back, { 'shop-1': 'sibling', other: 'sibling' }, { holder });
    expect(heard(client)).to.deep.equal(['+other sibling']);
  });

  it('§4.8 goes by the name of the resource, and by each of its aliases', () => {
    const client = subscribing('shop-1', 'alias');
    const resource = put(cds, 'other', 'back', { aliases: ['shop-1', 'alias'] });
    says(back, {}, { puts: [resource] });
    says(front, {});
    const [first, second] = client.received();
    expect(first?.resources.map(({ name, aliases }) => [name, aliases])).to.deep.equal([
      ['other', ['alias']],
    ]);
    expect(second?.removedResources).to.deep.equal(['shop-1']);
  });

  it('§6.3 a glob shows what the first has of its members, and what nobody else serves', () => {
    const path = 'xdstp://example.com/envoy.config.cluster.v3.Cluster';
    const tenant = new Claiming('tenant', `${path}/all/a`);
    const rest = new Claiming('rest', `${path}/all/`);
    lab.relay.replace([tenant, rest]);
    const client = subscribing(`${path}/all/*`, `${path}/all/a`);
    expect([...rest.interests].map(({ selector }) => selector)).to.deep.equal([`${path}/all/*`]);
    says(rest, { [`${path}/all/a`]: 'rest', [`${path}/all/b`]: 'rest' }, { role: 'named' });
    expect(heard(client)).to.deep.equal([`+${path}/all/b rest`]);
    says(tenant, { [`${path}/all/a`]: 'tenant' }, { role: 'named' });
    expect(heard(client)).to.deep.equal([`+${path}/all/a tenant`]);
  });

  it('what nobody claims is of whoever says it', () => {
    const [aliases, others] = [new Claiming('aliases', 'alias'), new Claiming('others', 'other')];
    lab.relay.replace([aliases, others]);
    const client = subscribing('alias');
    says(aliases, {}, { puts: [put(cds, 'name', 'it', { aliases: ['alias'] })] });
    expect(heard(client)).to.deep.equal(['+name it']);
  });

  describe('a reload that gives an upstream what was absent as another one said, or as nobody served it', () => {
    const glob = 'xdstp://example.com/envoy.config.cluster.v3.Cluster/all/*';
    const prefixes = ['*', 'plain', 'xdstp'];
    const plain = new Claiming('plain', ...prefixes);
    /** Before it nobody has a claim to these, or one that has nothing of them. */
    const formers = {
      nobody: [new Claiming('former', 'other')],
      'another upstream': [new Claiming('former', ...prefixes)],
    };
    const subscribes = (name: string, member: string): DeltaClient => {
      const client = lab.delta();
      client.send('cds', {
        resourceNamesSubscribe: [name],
        initialResourceVersions: { [member]: '1@1' },
      });
      return client;
    };
    const comesBack = (name: string): SotwClient => {
      const client = lab.sotw();
      client.send('cds', { resourceNames: [name], versionInfo: '2' });
      return client;
    };

    for (const [who, [former]] of Object.entries(formers)) {
      for (const name of ['*', 'plain', glob]) {
        const member = name === glob ? glob.replace('*', 'a') : 'plain';
        describe(`${name}, of ${who}`, () => {
          let before: DeltaClient;

          beforeEach(() => {
            if (former === undefined) throw new Error('there is one');
            for (const upstream of [plain, former]) upstream.interests.clear();
            lab.relay.replace([former]);
            before = subscribing(name);
            if (who !== 'nobody') says(former, {});
            before.received();
            lab.relay.replace([plain, former]);
            lab.settle();
          });

          it('§3.9 is unknown to who comes, until that has answered', () => {
            const [delta, sotw] = [subscribes(name, member), comesBack(name)];
            expect([...delta.received(), ...sotw.received(), ...before.received()]).to.deep.equal([]);
            says(plain, { [member]: 'plain' });
            expect(heard(delta)).to.deep.equal([`+${member} plain`]);
            expect(heard(before)).to.deep.equal([`+${member} plain`]);
            const state = sotw.one();
            expect([resources(state), state.resourceErrors]).to.deep.equal([{ [member]: 'plain' }, []]);
          });

          it('is absent once that says so', () => {
            const [delta, sotw] = [subscribes(name, member), comesBack(name)];
            says(plain, {});
            expect(heard(delta)).to.include(`-${member}`);
            const state = sotw.one();
            expect([resources(state), state.resourceErrors]).to.deep.equal([{}, []]);
          });

          it('§8.4 who comes while that is down is told UNAVAILABLE, and not that it does not exist', () => {
            plain.down = true;
            const [delta, sotw] = [subscribes(name, member), comesBack(name)];
            plain.down = false;
            expect([delta.status?.code, sotw.status?.code]).to.deep.equal([14, 14]);
            expect([...delta.received(), ...sotw.received()]).to.deep.equal([]);
            expect(before.status, 'it was answered').to.equal(undefined);
          });
        });
      }
    }
  });

  describe('a reload of files', () => {
    const files = new Publishing('files', 'shop-');
    let client: DeltaClient;

    beforeEach(() => {
      lab.relay.replace([files, back]);
      says(files, { 'shop-1': 'files' }, { complete: true });
    });

    it('that gives them another name leaves nothing that they do not remove', () => {
      client = subscribing('*');
      says(back, { other: 'back' });
      expect(heard(client)).to.deep.equal(['+other back', '+shop-1 files']);
      const renamed = new Publishing('renamed', 'shop-');
      lab.relay.replace([renamed, back]);
      says(renamed, { 'shop-1': 'files' }, { complete: true });
      expect(heard(client)).to.deep.equal([]);
      says(renamed, {}, { complete: true });
      expect(heard(client)).to.deep.equal(['-shop-1']);
    });

    it('that takes them away leaves what somebody has, until the next one has answered', () => {
      client = subscribing('*', 'shop-1');
      says(back, { other: 'back' });
      heard(client);
      const next = new Claiming('next');
      lab.relay.replace([next]);
      const late = subscribing('shop-1');
      expect(heard(late)).to.deep.equal(['+shop-1 files']);
      says(next, { other: 'back' });
      expect(heard(client)).to.deep.equal(['-shop-1']);
    });

    it('that takes them away leaves nothing that nobody has: the next one may never say that it is not there', () => {
      lab.relay.replace([new Claiming('next')]);
      client = subscribing('shop-1');
      expect(heard(client)).to.deep.equal([]);
      expect(lab.relay.store.variants(cds)).to.equal(0);
    });
  });

  for (const role of ['wildcard', 'named'] as const) {
    describe(`a reload that puts claims in front (of what came with the role ${role})`, () => {
      const later = new Claiming('back');
      let client: DeltaClient;

      beforeEach(() => {
        later.interests.clear();
        lab.relay.replace([back]);
        client = subscribing('*', 'shop-1', 'shop-2', 'shop-3');
        const all = { 'shop-1': 'back', 'shop-2': 'back', 'shop-3': 'back', other: 'back' };
        says(back, all, { role: 'wildcard' });
        if (role === 'named') says(back, all, { role });
        heard(client);
        lab.relay.replace([front, later]);
      });

      it('leaves what was served until the first has answered, whatever the later one says', () => {
        says(later, { 'shop-1': 'later', other: 'back' }, { role: 'wildcard', complete: true });
        says(later, {}, { role: 'named', complete: true });
        says(later, {}, { removals: [gone('shop-3')] });
        expect(heard(client)).to.deep.equal([]);
        const [first, ...others] = [...front.interests];
        says(front, { 'shop-1': 'front' }, { role: 'named', resolved: first === undefined ? [] : [first] });
        expect(heard(client)).to.deep.equal(['+shop-1 front']);
        says(front, { 'shop-2': 'back' }, { role: 'named', resolved: others });
        expect(heard(client)).to.deep.equal(['-shop-3']);
      });

      it('its wildcard keeps nothing of it', () => {
        const wild = subscribing('*');
        expect(heard(wild)).to.have.length(4);
        says(later, { 'shop-1': 'later', other: 'back' });
        expect(heard(wild)).to.deep.equal(['-shop-1', '-shop-2', '-shop-3']);
      });

      it('and one that takes them away again serves what the later one has', () => {
        says(front, { 'shop-1': 'front', 'shop-2': 'front' });
        says(later, { other: 'back' }, { complete: true });
        heard(client);
        lab.relay.replace([back]);
        says(back, { 'shop-1': 'back', 'shop-3': 'back', other: 'back' }, { complete: true });
        expect(heard(client)).to.deep.equal(['+shop-1 back', '+shop-3 back', '-shop-2']);
      });
    });
  }
});
