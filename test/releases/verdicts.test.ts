import { fromBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { nameKey } from '../../src/model/holds.ts';
import { placeOf } from '../../src/model/node-path.ts';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type Transaction, transaction } from '../../src/model/transaction.ts';
import { Rollout } from '../../src/releases/rollout.ts';
import { nothingSaved, plainHash, type SavedRollout } from '../../src/releases/rollout-file.ts';
import { Verdicts } from '../../src/releases/verdicts.ts';
import type { CanaryStream, Fleet } from '../../src/releases/waiting.ts';
import { contentOf, namedHolder, put, type, when } from '../support/in-memory-relay.ts';
import { unheard, withoutCanaries } from '../support/rollouts.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');
const prod = when({ env: 'prod' });
const test = when({ env: 'test' });
const dev = when({ env: 'dev' });
const inEurope = when({ env: 'prod', region: 'eu' });
const minute = 60_000;

const interestsOf = (entries: [string, string][]) =>
  ['a', 'b'].map((name) => ({
    type: cds,
    selector: resourceName(name),
    parameters: internParameters(entries),
  }));
const interests = [...interestsOf([]), ...interestsOf([['env', 'prod']])];

/** A relay with one class of clients, of which nobody is a canary by a rule. */
class Setting {
  readonly clock = new VirtualClock();
  readonly store: Store;
  readonly rollout: Rollout;
  saved: SavedRollout;
  /** The nodes that were elected. */
  readonly elected: string[] = [];
  canaries: CanaryStream[] = [];
  /** With two classes, each subscribes to a name of its own. */
  classOf: (nodeKey: string) => string = () => 'one';
  /** Nobody subscribes to it. */
  unsubscribed = '';

  constructor(saved: SavedRollout = nothingSaved) {
    this.saved = saved;
    this.store = new Store({ clock: this.clock, ambiguous: () => {}, expiring: () => {} });
    for (const interest of interests) this.store.addInterest(interest);
    const fleet: Fleet = {
      survey: (waiting) => ({
        complete: true,
        members: ['n1', 'n2'].map((nodeKey) => ({
          nodeKey,
          place: placeOf(nodeKey),
          classKey: this.classOf(nodeKey),
          mayBeCanary: true,
          cohort: this.elected.includes(nodeKey) ? 'canary' : 'released',
          subscribed: new Set([new Set(this.#subscribed(nodeKey, waiting))]),
        })),
        canaries: this.canaries,
      }),
      waitingChanged: () => {},
      isMoving: false,
      moved: (isMoved) => {
        this.elected.push(
          ...['n1', 'n2']
            .filter((nodeKey) => isMoved({ nodeKey, classKey: this.classOf(nodeKey) }))
            .filter((nodeKey) => this.rollout.canaries.named.has(nodeKey)),
        );
      },
    };
    this.rollout = new Rollout(withoutCanaries([cds]), {
      gate: this.store.held,
      fleet,
      clock: this.clock,
      saved,
      removalLimits: () => [],
      events: {
        ...unheard,
        save: (state) => {
          this.saved = state;
        },
      },
    });
  }

  /** What is released is restored, and the interests with it. */
  static restarted(before: Setting): Setting {
    const setting = new Setting(before.saved);
    setting.has(released);
    return setting;
  }

  has(puts: Transaction['puts']): void {
    this.store.apply(transaction({ holder: { ...namedHolder, restored: true }, type: cds, puts }));
    this.#settle();
  }

  says(part: Partial<Transaction>): void {
    this.store.apply(transaction({ holder: namedHolder, type: cds, ...part }));
    this.#settle();
  }

  /** A client with these parameters subscribes to both names, or leaves. */
  comes(env: string): void {
    for (const one of interestsOf([['env', env]])) this.store.addInterest(one);
  }

  leaves(env: string): void {
    for (const one of interestsOf([['env', env]])) this.store.removeInterest(one);
    this.clock.advance(2000);
  }

  /** A reload replaces the upstream: nothing that it said is confirmed any more. */
  isReplaced(): void {
    this.store.markRestored(namedHolder.upstream, () => namedHolder.upstream);
    this.clock.advance(2000);
  }

  /** A reload adds a key to the parameters: the same content is for others now. */
  isRestamped(): void {
    const moves = ['a', 'b'].map((name) => ({
      holder: namedHolder,
      name: resourceName(name),
      from: prod,
      to: inEurope,
    }));
    for (const one of interestsOf([
      ['env', 'prod'],
      ['region', 'eu'],
    ]))
      this.store.addInterest(one);
    this.store.restamp({ type: cds, moves, unresolved: [] });
    this.#settle();
    this.clock.advance(2000);
  }

  /** Its clients leave and come again: what nobody subscribes to is dropped meanwhile. */
  comesAgain(): void {
    for (const interest of interests) this.store.removeInterest(interest);
    for (const interest of interests) this.store.addInterest(interest);
    this.#settle();
  }

  /** The canary rejects both names. */
  rejects(): void {
    const names = new Set(['a', 'b'].map((name) => nameKey(cds, resourceName(name))));
    const standing = { kind: 'rejected', reason: 'cds a: no', names, isFinal: true } as const;
    this.canaries = [{ stream: 's1', node: 'n1', classKey: 'one', standing, names: [names] }];
    this.rollout.answered();
    this.clock.advance(100);
  }

  /** The canary leaves for good. */
  canaryLeaves(): void {
    for (const stream of this.canaries.splice(0)) this.rollout.canaryEnded(stream);
    this.clock.advance(2000);
  }

  /** Everybody gets `released`, until `unfreeze`. */
  rollsBack(): void {
    const scope = { type: cds };
    const contents = new Map(
      ['a', 'b'].map((name) => [
        resourceName(name),
        this.store.held.contentOf(cds, resourceName(name), 'released'),
      ]),
    );
    this.rollout.rollsBack([scope]);
    this.store.held.replace(cds, contents, scope, 'a test');
    this.rollout.freeze(scope, { operator: 'somebody', reason: 'a test' });
  }

  unfreezes(): void {
    expect(this.rollout.unfreeze({ type: cds }).ok).to.equal(true);
    this.clock.advance(2000);
  }

  get state(): string {
    const { state } = this.rollout.report();
    return state.kind === 'HELD' ? `HELD: ${state.reason}` : state.kind;
  }

  #subscribed(nodeKey: string, waiting: Parameters<Fleet['survey']>[0]): string[] {
    const all = [...(waiting.get(cds) ?? [])].filter((name) => name !== this.unsubscribed);
    const isAlone = this.classOf('n1') === this.classOf('n2');
    const own = isAlone ? all : all.filter((name) => name === (nodeKey === 'n1' ? 'a' : 'b'));
    return own.map((name) => nameKey(cds, name));
  }

  #settle(): void {
    this.store.held.notify();
    this.clock.advance(100);
  }
}

const one = (name: string, content: string, constraints = prod) => put(cds, name, content, { constraints });
const released = [one('a', '1'), one('a', '1', test), one('b', '1')];
const bad = [one('a', 'bad'), one('b', '2')];

/** A relay whose canary has rejected `bad`, after its restart. */
function restarted(): Setting {
  const before = new Setting();
  before.says({ puts: released });
  before.says({ puts: bad });
  before.rejects();
  expect(before.state).to.equal('HELD: cds a: no');
  return Setting.restarted(before);
}

const held = 'HELD: cds a: no';

const contentIn = (bytes: Uint8Array): string => contentOf(fromBinary(AnySchema, bytes));

function inFreeze(setting: Setting, says: () => void): void {
  setting.rollout.freeze({}, { operator: 'somebody', reason: 'a test' });
  says();
  setting.rollout.unfreeze({});
  setting.clock.advance(100);
}

interface Row {
  readonly rule: string;
  readonly after: (setting: Setting) => void;
  readonly state: string;
}

const rows: readonly Row[] = [
  { rule: 'upstream says the same', after: (r) => r.says({ puts: bad }), state: held },
  {
    rule: 'the same comes name by name',
    after: (r) => bad.forEach((each) => r.says({ puts: [each] })),
    state: held,
  },
  { rule: 'only one of the names yet', after: (r) => r.says({ puts: bad.slice(1) }), state: held },
  {
    rule: 'one of them is mended',
    after: (r) => r.says({ puts: [one('a', '3'), one('b', '2')] }),
    state: 'CANARY',
  },
  {
    rule: 'one of them is what is released',
    after: (r) => r.says({ puts: [...released.slice(0, 2), one('b', '2')] }),
    state: 'CANARY',
  },
  { rule: 'all of it is taken back', after: (r) => r.says({ puts: released }), state: 'IDLE' },
  {
    rule: 'a client with other parameters comes',
    after: (r) => {
      r.says({ puts: bad });
      r.comes('dev');
      r.says({ puts: [one('a', '1', dev)] });
      r.clock.advance(2000);
    },
    state: held,
  },
  {
    rule: 'a client with other parameters comes, and leaves for good',
    after: (r) => {
      r.says({ puts: bad });
      r.comes('dev');
      r.says({ puts: [one('a', '1', dev), one('b', '1', dev)] });
      r.leaves('dev');
    },
    state: held,
  },
  {
    rule: 'a client with other parameters gets what the others have rejected',
    after: (r) => {
      r.says({ puts: bad });
      r.comes('dev');
      r.says({ puts: [one('a', 'bad', dev)] });
    },
    state: held,
  },
  {
    rule: 'all clients leave for good',
    after: (r) => {
      r.says({ puts: bad });
      r.leaves('prod');
    },
    state: held,
  },
  {
    rule: 'a reload replaces the upstream',
    after: (r) => {
      r.says({ puts: bad });
      r.isReplaced();
    },
    state: held,
  },
  {
    rule: 'a reload replaces the upstream, which says the same',
    after: (r) => {
      r.says({ puts: bad });
      r.isReplaced();
      r.says({ puts: bad });
    },
    state: held,
  },
  {
    rule: 'a reload replaces the upstream, which has one of them mended',
    after: (r) => {
      r.says({ puts: bad });
      r.isReplaced();
      r.says({ puts: [one('a', '3')] });
    },
    state: 'CANARY',
  },
  {
    rule: 'a reload replaces the upstream, which has one of them no more',
    after: (r) => {
      r.says({ puts: bad });
      r.isReplaced();
      r.says({ removals: [{ name: resourceName('a'), constraints: prod }] });
    },
    state: 'CANARY',
  },
  {
    rule: 'a reload adds a key to the parameters',
    after: (r) => {
      r.says({ puts: bad });
      r.isRestamped();
    },
    state: held,
  },
  {
    rule: 'one of them is removed instead',
    after: (r) => {
      r.says({ puts: bad });
      r.says({ removals: [{ name: resourceName('a'), constraints: prod }] });
    },
    state: 'CANARY',
  },
  {
    rule: 'a freeze has ended in which upstream says the same, and its subscribers come again',
    after: (r) =>
      inFreeze(r, () => {
        r.says({ puts: bad });
        r.comesAgain();
        r.says({ puts: bad });
      }),
    state: held,
  },
  {
    rule: 'a freeze has ended in which one of them is mended',
    after: (r) =>
      inFreeze(r, () => {
        r.says({ puts: bad });
        r.says({ puts: [one('a', '3'), one('b', '2')] });
      }),
    state: 'CANARY',
  },
  {
    rule: 'an operator discards it, and upstream says something else',
    after: (r) => {
      r.says({ puts: bad });
      r.rollout.discard({}, 'a test');
      r.says({ puts: [one('b', '3')] });
    },
    state: 'CANARY',
  },
];

describe('promote', () => {
  /** `a` is rejected by one class, and `b` accepted by another. */
  function twoChanges(): Setting {
    const setting = new Setting();
    setting.classOf = (nodeKey) => (nodeKey === 'n1' ? 'one' : 'two');
    setting.says({ puts: released });
    setting.says({ puts: bad });
    const rejected = new Set([nameKey(cds, resourceName('a'))]);
    const accepted = new Set([nameKey(cds, resourceName('b'))]);
    const no = { kind: 'rejected', reason: 'cds a: no', names: rejected, isFinal: true } as const;
    setting.canaries = [
      { stream: 's1', node: 'n1', classKey: 'one', standing: no, names: [rejected] },
      { stream: 's2', node: 'n2', classKey: 'two', standing: { kind: 'accepted' }, names: [accepted] },
    ];
    setting.rollout.answered();
    setting.clock.advance(100);
    return setting;
  }

  it('what one class has rejected keeps the change of another from nothing', () => {
    const setting = twoChanges();
    expect(setting.rollout.promote({}, 'looks good')).to.deep.equal({
      ok: true,
      value: { names: 1, wave: 1 },
    });
    expect([...setting.store.held.pending].map(({ name }) => name)).to.deep.equal(['a']);
    expect(setting.state).to.equal(held);
    const again = setting.rollout.promote({}, 'looks good');
    expect(again.ok ? '' : again.error).to.include('it is held (cds a: no)');
  });

  for (const onFailure of ['HOLD', 'DISCARD'] as const) {
    it(`on_failure: ${onFailure}: what a canary rejected before it unsubscribed it keeps no other change of its class from going on`, () => {
      const setting = new Setting();
      setting.rollout.reload({ ...withoutCanaries([cds]), onFailure });
      setting.says({ puts: released });
      setting.clock.advance(minute);
      setting.unsubscribed = 'a';
      const [a, b] = ['a', 'b'].map((name) => new Set([nameKey(cds, resourceName(name))]));
      const no = { kind: 'rejected', reason: 'cds a: no', names: a ?? new Set(), isFinal: true } as const;
      const one = { node: 'n1', classKey: 'one' };
      const names = [b ?? new Set<string>()];
      setting.canaries = [
        { ...one, stream: 's1', standing: { kind: 'accepted' }, names },
        { ...one, stream: 's1 before', standing: no, names: [no.names] },
      ];
      setting.says({ puts: bad });
      setting.clock.advance(minute);
      const waits = setting.store.held.pending.map(({ name, masked }) => [name, masked]);
      expect(waits).to.deep.equal([['a', onFailure === 'HOLD' ? undefined : 'discarded']]);
      if (onFailure === 'HOLD') expect(setting.state).to.equal(held);
    });
  }
});

describe('canaries in a freeze', () => {
  it('that they left before it is not forgotten: nobody else is asked when it ends', () => {
    const setting = new Setting();
    setting.says({ puts: released });
    setting.says({ puts: bad });
    const names = [new Set(['a', 'b'].map((name) => nameKey(cds, resourceName(name))))];
    setting.canaries = [{ stream: 's1', node: 'n1', classKey: 'one', standing: { kind: 'waiting' }, names }];
    setting.rollout.answered();
    setting.clock.advance(100);
    setting.canaryLeaves();
    const { state } = setting;
    expect(state).to.match(/^HELD: 1 of 1 canary streams ended/);
    const elected = [...setting.elected];
    inFreeze(setting, () => setting.clock.advance(2000));
    setting.clock.advance(2 * minute);
    expect([setting.state, setting.elected]).to.deep.equal([state, elected]);
  });

  for (const { rule, says, state } of [
    { rule: 'says something else and goes back', says: bad, state: held },
    { rule: 'says something else', says: [], state: 'CANARY' },
    { rule: 'mends one of them, and goes back with the other', says: bad.slice(1), state: 'CANARY' },
    { rule: 'goes back to what everybody has', says: released, state: 'IDLE' },
  ]) {
    it(`what a canary that left has rejected before it, where upstream ${rule}: ${state}`, () => {
      const setting = new Setting();
      setting.says({ puts: released });
      setting.says({ puts: bad });
      setting.rejects();
      setting.canaryLeaves();
      expect(setting.state).to.equal(held);
      inFreeze(setting, () => {
        setting.says({ puts: [one('a', '3'), one('b', '3')] });
        setting.says({ puts: says });
      });
      setting.clock.advance(2000);
      expect(setting.state).to.equal(state);
    });
  }

  it('who was elected stays one as long as it has what the others have not', () => {
    const setting = new Setting();
    setting.says({ puts: released });
    setting.says({ puts: bad });
    const elected = [...setting.rollout.canaries.named];
    expect(elected).to.have.length(1);
    inFreeze(setting, () => {
      setting.says({ puts: [one('a', '3'), one('b', '3')] });
      setting.clock.advance(2 * minute);
      expect([...setting.rollout.canaries.named], 'frozen').to.deep.equal(elected);
      setting.says({ puts: released });
    });
    setting.clock.advance(2 * minute);
    expect([...setting.rollout.canaries.named], 'nothing waits').to.deep.equal([]);
  });

  describe('who was let in by a later wave', () => {
    const path = 'rollout.waves';
    const waves = [
      { path, percent: 0, match: [], elects: true, bakeMs: undefined },
      { path, percent: 100, match: [], elects: true, bakeMs: undefined },
    ];
    const client = { nodeKey: 'n3', classKey: 'one', place: 0.5, parameters: NO_PARAMETERS, address: '' };

    /** What waits has come to its second wave. */
    function inSecondWave(): Setting {
      const setting = new Setting();
      setting.rollout.reload({ ...withoutCanaries([cds]), waves, mode: 'MANUAL' });
      setting.says({ puts: released });
      setting.says({ puts: bad });
      expect(setting.rollout.canaries.cohortOf(client)).to.equal('released');
      expect(setting.rollout.promote({}, 'a test').ok).to.equal(true);
      expect(setting.rollout.canaries.cohortOf(client)).to.equal('canary');
      return setting;
    }

    it('keeps what it has, and goes on from there when the freeze ends', () => {
      const setting = inSecondWave();
      inFreeze(setting, () => {
        setting.clock.advance(2 * minute);
        expect(setting.rollout.canaries.cohortOf(client), 'frozen').to.equal('canary');
        setting.says({ puts: [one('a', '3'), one('b', '3')] });
        expect(setting.rollout.canaries.cohortOf(client), 'upstream says something else').to.equal('canary');
      });
      expect(setting.rollout.canaries.cohortOf(client), 'unfrozen').to.equal('canary');
      expect(setting.rollout.report().wave).to.equal(2);
    });

    const contents = (setting: Setting, column: 'released' | 'canary'): string =>
      ['a', 'b']
        .flatMap((name) => setting.store.held.contentOf(cds, resourceName(name), column))
        .map(({ variant: { name, payload } }) => `${name} ${payload && contentIn(payload.bytes)}`)
        .join(', ');

    it('gets all of it or nothing: what upstream says meanwhile of a part of it comes after it', () => {
      const setting = inSecondWave();
      inFreeze(setting, () => setting.says({ puts: [one('b', '3')] }));
      expect(contents(setting, 'canary')).to.equal('a bad, a 1, b 2');
      expect(setting.rollout.promote({}, 'a test').ok).to.equal(true);
      expect(contents(setting, 'released')).to.equal('a bad, a 1, b 2');
      setting.clock.advance(minute);
      expect(contents(setting, 'canary')).to.equal('a bad, a 1, b 3');
      expect(setting.rollout.report().wave).to.equal(1);
    });

    it('gets what mends it: what was held goes on with what upstream has said meanwhile', () => {
      const setting = inSecondWave();
      setting.rejects();
      expect(setting.state).to.equal(held);
      inFreeze(setting, () => {
        setting.says({ puts: [one('a', '3')] });
        setting.canaries = [];
      });
      expect(contents(setting, 'canary')).to.equal('a 3, a 1, b 2');
      expect(setting.rollout.report().wave).to.equal(2);
    });

    describe('after a restart', () => {
      const first = [one('a', 'bad'), one('a', '2', test)];

      /** Clients of the second wave have `first`, another change is queued, and the relay starts again. */
      function again(): Setting {
        const before = new Setting();
        before.rollout.reload({ ...withoutCanaries([cds]), waves, mode: 'MANUAL' });
        before.says({ puts: released });
        before.says({ puts: first });
        expect(before.rollout.promote({}, 'a test').ok).to.equal(true);
        before.clock.advance(2000);
        before.says({ puts: [one('b', '2')] });
        expect(contents(before, 'canary')).to.equal('a bad, a 2, b 1');
        const setting = Setting.restarted(before);
        setting.rollout.reload({ ...withoutCanaries([cds]), waves, mode: 'MANUAL' });
        return setting;
      }

      it('keeps what it had, and gets nothing else before that has ended', () => {
        const setting = again();
        for (const part of [...first, one('b', '2')]) setting.says({ puts: [part] });
        expect(contents(setting, 'canary')).to.equal('a bad, a 2, b 1');
        setting.says({ puts: [one('b', '3')] });
        expect(setting.rollout.report().wave).to.equal(1);
        expect(setting.saved.shown.map(({ name }) => name)).to.deep.equal(['a']);
        expect(setting.rollout.promote({}, 'a test').ok).to.equal(true);
        setting.clock.advance(2 * minute);
        expect(contents(setting, 'canary')).to.equal('a bad, a 2, b 1');
        expect(setting.rollout.promote({}, 'a test').ok).to.equal(true);
        expect(contents(setting, 'released')).to.equal('a bad, a 2, b 1');
        setting.clock.advance(2000);
        expect(contents(setting, 'canary')).to.equal('a bad, a 2, b 3');
        expect(setting.saved.shown).to.deep.equal([]);
      });

      it('of which upstream says nothing any more is one of everybody after a minute', () => {
        const setting = again();
        setting.says({ puts: [one('b', '2')] });
        setting.clock.advance(minute / 2);
        expect(contents(setting, 'canary'), 'it may still come').to.equal('a 1, a 1, b 1');
        setting.clock.advance(minute);
        expect(contents(setting, 'canary')).to.equal('a 1, a 1, b 2');
        expect(setting.saved.shown).to.deep.equal([]);
      });
    });

    it('goes back with what is discarded in the freeze', () => {
      const setting = inSecondWave();
      inFreeze(setting, () => {
        expect(setting.rollout.discard({}, 'a test').ok).to.equal(true);
        setting.clock.advance(minute);
        expect(setting.rollout.canaries.cohortOf(client)).to.equal('released');
      });
    });
  });

  it('what they rejected before goes to nobody else', () => {
    const setting = new Setting();
    setting.says({ puts: released });
    setting.says({ puts: bad });
    setting.rejects();
    const waves = [{ path: 'rollout.canary', percent: 100, match: [], elects: true, bakeMs: undefined }];
    setting.rollout.reload({ ...withoutCanaries([cds]), waves });
    const newcomer = { nodeKey: 'n3', classKey: 'one', place: 0.5, parameters: NO_PARAMETERS, address: '' };
    inFreeze(setting, () => {
      setting.says({ puts: [one('a', '3'), one('b', '3')] });
      expect(setting.rollout.canaries.cohortOf(newcomer)).to.equal('released');
      setting.canaries = [];
    });
    expect(setting.rollout.canaries.cohortOf(newcomer), 'the new content').to.equal('canary');
  });
});

describe('what was found bad, after a rollback', () => {
  /** A canary has rejected `bad`, and everybody has `released` again. */
  function rolledBack(): Setting {
    const setting = new Setting();
    setting.says({ puts: released });
    setting.says({ puts: bad });
    setting.rejects();
    expect(setting.state).to.equal(held);
    setting.rollsBack();
    return setting;
  }
  const table: readonly Row[] = [
    { rule: 'upstream says the same', after: (r) => r.unfreezes(), state: held },
    {
      rule: 'the canary has left, and the relay starts again',
      after: (r) => {
        r.canaryLeaves();
        const again = Setting.restarted(r);
        again.says({ puts: bad });
        again.unfreezes();
        expect(again.state).to.equal(held);
        r.unfreezes();
      },
      state: held,
    },
    {
      rule: 'one of them is mended meanwhile',
      after: (r) => {
        r.says({ puts: [one('a', '3'), one('b', '2')] });
        r.unfreezes();
      },
      state: 'CANARY',
    },
    {
      rule: 'one of them is mended, and bad again',
      after: (r) => {
        r.says({ puts: [one('a', '3')] });
        r.says({ puts: bad });
        r.unfreezes();
      },
      state: held,
    },
    {
      rule: 'one of them is removed meanwhile',
      after: (r) => {
        r.says({ removals: [{ name: resourceName('a'), constraints: prod }] });
        r.unfreezes();
      },
      state: 'CANARY',
    },
    {
      rule: 'all of it is taken back',
      after: (r) => {
        r.says({ puts: released });
        r.unfreezes();
      },
      state: 'IDLE',
    },
    {
      rule: 'one of them is mended after it',
      after: (r) => {
        r.unfreezes();
        r.says({ puts: [one('a', '3'), one('b', '2')] });
      },
      state: 'CANARY',
    },
    {
      rule: 'everything is rolled back again',
      after: (r) => {
        r.unfreezes();
        r.rollsBack();
        r.unfreezes();
      },
      state: held,
    },
  ];
  for (const { rule, after, state } of table)
    it(`${rule}: ${state}`, () => {
      const setting = rolledBack();
      setting.canaries = [];
      after(setting);
      expect(setting.state).to.equal(state);
      if (state === held) expect(setting.saved.verdicts).to.have.length(1);
      if (state === 'IDLE') expect(setting.saved.verdicts).to.have.length(0);
    });

  it('clients have left: it stays held', () => {
    const setting = new Setting();
    setting.says({ puts: released });
    setting.says({ puts: bad });
    const names = [new Set(['a', 'b'].map((name) => nameKey(cds, resourceName(name))))];
    setting.canaries = [{ stream: 's1', node: 'n1', classKey: 'one', standing: { kind: 'accepted' }, names }];
    setting.rollout.answered();
    setting.clock.advance(100);
    setting.canaryLeaves();
    const { state } = setting;
    expect(state).to.match(/^HELD: 1 of 1 canary streams ended/);
    setting.rollsBack();
    setting.clock.advance(minute);
    setting.unfreezes();
    setting.clock.advance(2 * minute);
    expect(setting.state).to.equal(state);
  });

  it('what was discarded stays discarded, until upstream says something else', () => {
    const setting = new Setting();
    setting.says({ puts: released });
    setting.says({ puts: bad });
    expect(setting.rollout.discard({}, 'a test').ok).to.equal(true);
    const masks = (): readonly unknown[] => setting.store.held.pending.map(({ masked }) => masked);
    setting.rollsBack();
    expect(masks()).to.deep.equal(['rolledBack', 'rolledBack']);
    setting.unfreezes();
    expect(masks()).to.deep.equal(['discarded', 'discarded']);
    setting.rollsBack();
    setting.says({ puts: [one('a', '3')] });
    setting.unfreezes();
    expect(masks()).to.have.members(['discarded', undefined]);
  });
});

describe('what was found bad for two reasons', () => {
  it('is held for the first of them after a restart too', () => {
    const before = new Setting();
    before.says({ puts: released });
    before.says({ puts: bad });
    before.rejects();
    before.canaryLeaves();
    expect(before.state).to.equal(held);
    let setting = before;
    for (const _ of [1, 2]) {
      setting = Setting.restarted(setting);
      setting.says({ puts: bad });
      expect([setting.state, setting.saved.verdicts.length]).to.deep.equal([held, 1]);
    }
  });
});

describe('verdicts after a restart', () => {
  for (const { rule, after, state } of rows) {
    it(`${rule}: ${state}`, () => {
      const setting = restarted();
      after(setting);
      expect(setting.state).to.equal(state);
    });
  }

  it('the canary never comes back: it stays held, and nobody else is asked', () => {
    const setting = restarted();
    setting.says({ puts: bad });
    setting.clock.advance(20 * minute);
    expect([setting.state, setting.elected]).to.deep.equal([held, []]);
    const again = Setting.restarted(setting);
    again.says({ puts: bad });
    again.clock.advance(2 * minute);
    expect([again.state, again.elected, again.saved.verdicts.length]).to.deep.equal([held, [], 1]);
  });

  it('upstream has said nothing yet: nothing is saved', () => {
    const { saved } = restarted();
    const setting = new Setting(saved);
    setting.has(released);
    setting.clock.advance(2000);
    expect([setting.saved === saved, saved.verdicts.length]).to.deep.equal([true, 1]);
  });

  /** Clients with parameters of their own come, one after another, and leave for good. */
  function manyPass(setting: Setting, contentOf: (env: string) => string): void {
    for (let index = 0; index < 150; index++) {
      const env = `invented-${index}`;
      setting.comes(env);
      setting.says({ puts: [one('a', contentOf(env), when({ env }))] });
      setting.leaves(env);
    }
  }
  const own = (env: string): string => `of ${env}`;

  it('very many clients with other parameters come and leave: it stays held', () => {
    const setting = restarted();
    setting.says({ puts: bad });
    manyPass(setting, own);
    expect(setting.state).to.equal(held);
  });

  it('after some of those who have what was found bad, very many others leave: it stays held', () => {
    const setting = restarted();
    setting.comes('test');
    setting.says({ puts: [...bad, one('a', 'bad for test', test)] });
    setting.rejects();
    const again = Setting.restarted(setting);
    again.comes('test');
    again.says({ puts: [...bad, one('a', 'bad for test', test)] });
    again.leaves('test');
    manyPass(again, own);
    expect([again.state, again.saved.verdicts.length]).to.deep.equal([held, 1]);
    again.comes('test');
    again.says({ puts: [one('a', 'bad for test', test)] });
    expect(again.state).to.equal(held);
  });

  it('the same where one resource was for all of them before: it stays held', () => {
    const before = new Setting();
    before.comes('test');
    const ofAll = [put(cds, 'a', '1')];
    before.says({ puts: ofAll });
    const removals = [{ name: resourceName('a'), constraints: UNCONSTRAINED }];
    const split = { removals, puts: [one('a', 'bad'), one('a', 'bad for test', test)] };
    before.says(split);
    before.rejects();
    const setting = new Setting(before.saved);
    setting.has(ofAll);
    setting.comes('test');
    setting.says(split);
    expect(setting.state).to.equal(held);
    setting.leaves('test');
    manyPass(setting, () => 'bad');
    expect([setting.state, setting.saved.verdicts.length]).to.deep.equal([held, 1]);
  });

  it('while nothing is said, nothing is compared again', () => {
    const setting = restarted();
    setting.says({ puts: bad });
    const { held: gate } = setting.store;
    let asked = 0;
    const verdicts = new Verdicts(
      setting.saved,
      {
        get pending() {
          return gate.pending;
        },
        get revision() {
          return gate.revision;
        },
        contentOf: (...of) => {
          asked++;
          return gate.contentOf(...of);
        },
        judgedContent: (...of) => gate.judgedContent(...of),
      },
      plainHash,
    );
    const looks = (): readonly number[] => [verdicts.restored().length, asked];
    const first = looks();
    expect(first[0]).to.equal(1);
    expect(looks()).to.deep.equal(first);
    setting.says({ puts: [one('a', '3')] });
    expect(looks()[0]).to.equal(0);
  });

  it('what was mended is forgotten on the disk too', () => {
    const setting = restarted();
    setting.says({ puts: [one('a', '3'), one('b', '2')] });
    expect(setting.saved.verdicts).to.deep.equal([]);
  });

  it('the canaries of before are none after a minute, though nothing waits then', () => {
    const before = { ...nothingSaved, canaries: new Map([['n1', 'one']]) };
    const setting = new Setting(before);
    setting.has(released);
    expect([...setting.rollout.canaries.named]).to.deep.equal(['n1']);
    setting.clock.advance(minute + 2000);
    expect([...setting.rollout.canaries.named]).to.deep.equal([]);
    expect(setting.saved.canaries.size).to.equal(0);
  });

  it('a rejection of very many names is remembered by some of them', () => {
    const setting = new Setting();
    const names = Array.from({ length: 3000 }, (_, index) => `c${index}`);
    for (const name of names)
      setting.store.addInterest({ type: cds, selector: resourceName(name), parameters: NO_PARAMETERS });
    for (const content of ['1', 'bad']) setting.says({ puts: names.map((name) => put(cds, name, content)) });
    const keys = new Set(names.map((name) => nameKey(cds, resourceName(name))));
    const standing = { kind: 'rejected', reason: 'cds: no', names: keys, isFinal: true } as const;
    setting.canaries = [{ stream: 's1', node: 'n1', classKey: 'one', standing, names: [keys] }];
    setting.rollout.answered();
    setting.clock.advance(100);
    expect(setting.saved.verdicts.map(({ contents }) => contents.length)).to.deep.equal([1000]);
  });
});

describe('what was discarded, after a restart', () => {
  /** A relay whose operator has discarded `wrong`, after its restart. */
  function afterDiscard(wrong: Partial<Transaction>): Setting {
    const before = new Setting();
    before.says({ puts: released });
    before.says(wrong);
    expect(before.rollout.discard({}, 'a test').ok).to.equal(true);
    return Setting.restarted(before);
  }

  const wrong = { puts: [one('a', 'wrong'), one('a', 'wrong', test), one('b', '2')] };
  const removal = { removals: [{ name: resourceName('b'), constraints: prod }] };
  interface DiscardRow extends Row {
    readonly change: Partial<Transaction>;
    /** On the disk, if these are others than those that are pending. */
    readonly saved?: readonly string[];
  }
  const table: readonly DiscardRow[] = [
    {
      rule: 'upstream says the same',
      change: wrong,
      after: (r) => r.says(wrong),
      state: 'IDLE; discarded a b',
    },
    {
      rule: 'the same comes variant by variant',
      change: wrong,
      after: (r) => wrong.puts.forEach((each) => r.says({ puts: [each] })),
      state: 'IDLE; discarded a b',
    },
    {
      rule: 'a freeze has ended in which the same comes variant by variant',
      change: wrong,
      after: (r) => inFreeze(r, () => wrong.puts.forEach((each) => r.says({ puts: [each] }))),
      state: 'IDLE; discarded a b',
    },
    {
      rule: 'a freeze has ended in which one of the names is another',
      change: wrong,
      after: (r) =>
        inFreeze(r, () => {
          r.says(wrong);
          r.says({ puts: [one('a', '3')] });
        }),
      state: 'CANARY; discarded b',
    },
    {
      rule: 'one of the names is another',
      change: wrong,
      after: (r) => {
        r.says(wrong);
        r.says({ puts: [one('a', '3')] });
      },
      state: 'CANARY; discarded b',
    },
    {
      rule: 'the other content is the first that it says',
      change: wrong,
      after: (r) => r.says({ puts: [one('a', '3'), one('b', '2')] }),
      state: 'CANARY; discarded b',
    },
    {
      rule: 'a client with other parameters comes first',
      change: wrong,
      after: (r) => {
        r.comes('dev');
        r.says({ puts: [one('a', '1', dev), one('b', '1', dev)] });
        r.says(wrong);
      },
      state: 'IDLE; discarded a b',
    },
    {
      rule: 'a reload adds a key to the parameters',
      change: wrong,
      after: (r) => {
        r.says(wrong);
        r.isRestamped();
        r.says({ puts: [one('a', 'wrong', inEurope)] });
      },
      state: 'IDLE; discarded a b',
    },
    {
      rule: 'it is taken back, and comes again',
      change: wrong,
      after: (r) => {
        r.says(wrong);
        r.says({ puts: released });
        r.says(wrong);
      },
      state: 'CANARY; discarded',
    },
    {
      rule: 'a removal that was discarded',
      change: removal,
      after: (r) => r.says(removal),
      state: 'IDLE; discarded b',
    },
    {
      rule: 'a removal instead of the content that was discarded',
      change: wrong,
      after: (r) => r.says(removal),
      state: 'CANARY; discarded',
      saved: ['a'],
    },
  ];
  const stateOf = (setting: Setting): string => {
    const { state, pending } = setting.rollout.report();
    const discarded = pending.filter(({ masked }) => masked === 'discarded').map(({ name }) => name);
    return [`${state.kind}; discarded`, ...discarded.toSorted()].join(' ');
  };
  it('a reload adds a key to the parameters before a restart: it stays discarded', () => {
    const setting = new Setting();
    setting.says({ puts: released, resolved: interests });
    setting.says(wrong);
    expect(setting.rollout.discard({}, 'a test').ok).to.equal(true);
    setting.isRestamped();
    setting.comes('dev');
    setting.says({ puts: [one('a', '1', dev)] });
    expect(stateOf(setting)).to.equal('IDLE; discarded a b');
  });

  it('for clients that had left before upstream said it, and have come back: it stays discarded', () => {
    const before = new Setting();
    before.comes('test');
    before.says({ puts: released });
    before.says({ puts: [one('a', 'wrong')] });
    before.leaves('test');
    expect(before.rollout.discard({}, 'a test').ok).to.equal(true);
    before.comes('test');
    before.says({ puts: [one('a', 'wrong', test)] });
    expect(stateOf(before)).to.equal('IDLE; discarded a');
    const setting = Setting.restarted(before);
    setting.comes('test');
    setting.says({ puts: [one('a', 'wrong'), one('a', 'wrong', test)] });
    expect(stateOf(setting)).to.equal('IDLE; discarded a');
  });

  it('clients that invent parameters add nothing to the file', () => {
    const setting = new Setting();
    setting.says({ puts: released, resolved: interests });
    setting.says(wrong);
    expect(setting.rollout.discard({}, 'a test').ok).to.equal(true);
    const { discards } = setting.saved;
    for (let index = 0; index < 20; index++) {
      const env = `invented-${index}`;
      const content = index % 2 === 0 ? 'wrong' : `of ${env}`;
      setting.comes(env);
      setting.says({ puts: [one('a', content, when({ env }))] });
      setting.leaves(env);
    }
    expect(stateOf(setting)).to.equal('IDLE; discarded a b');
    expect(setting.saved.discards).to.equal(discards);
  });

  for (const { rule, change, after, state, saved } of table) {
    it(`${rule}: ${state}`, () => {
      const setting = afterDiscard(change);
      after(setting);
      expect(stateOf(setting)).to.equal(state);
      const isKept = !state.endsWith('discarded');
      expect(setting.rollout.report().whyDiscarded, 'why').to.equal(isKept ? 'a test' : '');
      const again = Setting.restarted(setting);
      expect(again.saved.discards.map(({ name }) => name).toSorted()).to.deep.equal(
        saved ?? state.split('discarded')[1]?.trim().split(' ').filter(Boolean),
      );
    });
  }

  it('a canary that ended before a look has seen it is one when it comes back, though what waits is held', () => {
    const setting = new Setting();
    setting.has(released);
    const names = [new Set([nameKey(cds, resourceName('a'))])];
    const left = { stream: 's9', node: 'n9', classKey: 'one', standing: { kind: 'waiting' }, names } as const;
    setting.store.apply(transaction({ holder: namedHolder, type: cds, puts: [one('a', '2')] }));
    setting.store.held.notify();
    setting.rollout.canaryEnded(left);
    setting.clock.advance(2000);
    expect(setting.state).to.equal(
      'HELD: 1 of 1 canary streams ended within the bake: max_disconnects is 20 percent',
    );
    expect(setting.elected).to.deep.equal([]);
    const back = { nodeKey: 'n9', classKey: 'one', place: 0.5, parameters: NO_PARAMETERS, address: '' };
    expect(setting.rollout.canaries.cohortOf(back)).to.equal('canary');
    expect([...setting.saved.canaries.keys()]).to.deep.equal(['n9']);
  });
});
