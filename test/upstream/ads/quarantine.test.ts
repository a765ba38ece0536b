import { expect } from 'chai';
import { type TypeUrl, typeUrl } from '../../../src/model/brand.ts';
import { typeByName, typeInfo } from '../../../src/model/types.ts';
import {
  Quarantine,
  type Relocation,
  type Role,
  type StreamEnd,
} from '../../../src/upstream/ads/quarantine.ts';
import { cpuSeconds } from '../../support/cpu.ts';

/** A stream must live for 30 s here. */
const well = 30_000;

/** A session's streams, in seconds from its beginning. */
class Setting {
  readonly quarantine = new Quarantine(well);
  #now = 0;

  at(seconds: number): this {
    this.#now = seconds * 1000;
    return this;
  }

  /** Each is subscribed and asked, at once where its stream is open: `cds` is its wildcard, `cds x` a name of it. */
  ask(...units: readonly string[]): readonly number[] {
    return units.map((unit) => {
      const [type, role] = parse(unit);
      const streamId = this.quarantine.addInterest(type, role, this.#now);
      this.quarantine.firstRequested(streamId, type, this.#now);
      return streamId;
    });
  }

  open(streamId: number): this {
    this.quarantine.opened(streamId, this.#now);
    return this;
  }

  answer(streamId: number, ...types: readonly string[]): this {
    for (const type of types) this.quarantine.answered(streamId, typeOf(type));
    return this;
  }

  end(streamId: number, how: StreamEnd = 'ended'): readonly string[] {
    return told(this.quarantine.ended(streamId, how, 'no', this.#now));
  }

  survive(streamId: number): readonly string[] {
    return told(this.quarantine.survived(streamId, this.#now));
  }

  get suspects(): readonly string[] {
    return [...this.quarantine.suspects()].map(({ type }) => typeInfo(type).short);
  }
}

/** `cds` is known; `debug` is not. */
const typeOf = (name: string): TypeUrl => typeByName(name) ?? typeUrl(name);

function parse(unit: string): readonly [TypeUrl, Role] {
  const [type = '', name] = unit.split(' ');
  return [typeOf(type), name === undefined ? 'wildcard' : 'named'];
}

const told = (moves: readonly Relocation[]): readonly string[] =>
  moves.map(({ type, from, to }) => `${typeInfo(type).short} ${from}→${to}`);

/** CDS and EDS have lived for a minute on the first stream. */
function running(): Setting {
  const setting = new Setting();
  setting.ask('cds', 'eds x');
  setting.open(0).answer(0, 'cds');
  return setting.at(60);
}

/** SDS has ended its usual stream twice, and is on it again. */
function apartTwice(): Setting {
  const setting = running();
  setting.ask('sds');
  for (const from of [4, 4]) {
    setting.end(0);
    setting.open(from).survive(from);
    setting.open(0);
  }
  return setting;
}

describe('which stream asks what', () => {
  it('of thousands of types that end one stream costs little', () => {
    const setting = new Setting();
    const types = Array.from({ length: 5000 }, (_, at) => `invented${at}`);
    const [streamId = 0] = setting.ask(...types);
    setting.open(streamId);
    for (const type of types) setting.quarantine.firstRequested(streamId, typeOf(type), 0);
    const before = cpuSeconds();
    const moved =
      setting.at(1).end(streamId).length + setting.at(2).open(streamId).at(3).end(streamId).length;
    expect(moved).to.be.at.least(1);
    expect(cpuSeconds() - before).to.be.below(1);
  });

  it("whichever of a type's wildcard and names comes second is on the second stream", () => {
    expect(new Setting().ask('cds', 'cds x', 'eds x', 'eds', 'lds')).to.deep.equal([0, 1, 0, 1, 0]);
  });

  describe('nothing is suspected', () => {
    for (const { what, end } of [
      { what: 'when a stream ends after a long time', end: () => running().end(0) },
      {
        what: 'when one ends that the relay itself opened again just now',
        end: () => {
          const setting = running();
          setting.quarantine.closed(0, 60_000);
          return setting.open(0).at(61).end(0);
        },
      },
      {
        what: 'when it ends again and again, with what had lived long',
        end: () => {
          const setting = running();
          return [1, 2, 3, 4, 5].flatMap((second) => {
            const moves = setting.at(60 + second).end(0);
            setting.open(0);
            return moves;
          });
        },
      },
      {
        what: 'when what was asked last was answered',
        end: () => {
          const setting = running();
          setting.ask('lds');
          return setting.answer(0, 'lds').end(0);
        },
      },
      {
        what: 'when what was asked last is silent, for long',
        end: () => {
          const setting = running();
          setting.ask('rds x');
          return setting.at(91).end(0);
        },
      },
      {
        what: 'when the connection is lost, once or twice',
        end: () => {
          const setting = new Setting();
          setting.ask('cds', 'lds');
          return [1, 2].flatMap((second) => setting.at(second).open(0).end(0, 'lost'));
        },
      },
      {
        what: 'when the first stream ends before it says anything',
        end: () => {
          const setting = new Setting();
          setting.ask('cds', 'lds');
          return setting.open(0).end(0);
        },
      },
      {
        what: 'when the relay itself has closed the stream',
        end: () => {
          const setting = running();
          setting.ask('lds');
          setting.quarantine.closed(0, 60_000);
          return setting.suspects;
        },
      },
    ]) {
      it(what, () => {
        expect(end()).to.deep.equal([]);
      });
    }
  });

  it('what was asked last and has no answer is tried apart, at the first end', () => {
    const setting = running();
    setting.ask('lds', 'sds');
    setting.answer(0, 'lds');
    expect(setting.at(61).end(0)).to.deep.equal(['sds 0→4']);
    expect(setting.suspects).to.deep.equal(['sds']);
  });

  it('what was answered is suspected, too, when streams end again and again', () => {
    const setting = running();
    setting.ask('sds');
    setting.answer(0, 'sds');
    expect(setting.end(0)).to.deep.equal([]);
    for (const _ of [1, 2]) expect(setting.open(0).answer(0, 'sds').end(0)).to.deep.equal([]);
    expect(setting.open(0).answer(0, 'sds').end(0)).to.deep.equal(['sds 0→4']);
  });

  it('each is tried apart; what is answered there is no suspect any more, and goes back when it has lived for long enough', () => {
    const setting = running();
    setting.ask('lds', 'srds', 'sds');
    expect(setting.end(0)).to.deep.equal(['lds 0→4', 'srds 0→5', 'sds 0→6']);
    setting.open(0).open(4).open(5).open(6).answer(5, 'srds');
    expect(setting.end(6), 'found').to.deep.equal([]);
    expect(setting.suspects).to.deep.equal(['lds', 'sds']);
    setting.at(100);
    expect(setting.survive(5)).to.deep.equal(['srds 5→0']);
    expect(setting.survive(4)).to.deep.equal(['lds 4→0']);
    expect(setting.suspects).to.deep.equal(['sds']);
  });

  it('of those that share a stream, as there are too many, one stays when it ends, if there is room by then', () => {
    const setting = new Setting();
    const units = ['lds', 'cds', 'eds', 'rds', 'vhds', 'srds', 'sds', 'rtds', 'ecds', 'leds'];
    setting.ask('lds x');
    setting
      .open(0)
      .answer(0, 'lds')
      .at(60)
      .ask(...units.slice(1));
    expect(setting.end(0).map((move) => move.split('→')[1])).to.deep.equal([
      '4',
      '5',
      '6',
      '7',
      '8',
      '9',
      '10',
      '11',
      '4',
    ]);
    expect(setting.open(4).end(4)).to.deep.equal([]);
    setting.quarantine.removeInterest(typeOf('eds'), 'wildcard');
    expect(setting.open(4).end(4)).to.deep.equal(['cds 4→5']);
  });

  it('is halved on the usual stream where nothing would remain there, from the second end', () => {
    const setting = new Setting();
    setting.ask('lds', 'srds', 'rds');
    expect(setting.open(0).end(0)).to.deep.equal([]);
    expect(setting.open(0).end(0)).to.deep.equal(['srds 0→4', 'rds 0→5']);
    expect(setting.open(0).end(0)).to.deep.equal(['lds 0→6']);
  });

  it('is apart for twice as long each time that a usual stream ends because of it', () => {
    const setting = running();
    setting.ask('sds');
    const probations = Array.from({ length: 9 }, (_, round) => {
      const [moved = ''] = setting.at(60 + round).end(0);
      const streamId = Number(moved.split('→')[1]);
      const probation = setting.open(streamId).quarantine.probation(streamId);
      setting.survive(streamId);
      setting.open(0);
      return (probation ?? 0) / well;
    });
    expect(probations).to.deep.equal([1, 2, 4, 8, 16, 32, 64, 64, 64]);
    expect(setting.quarantine.probation(0)).to.equal(undefined);
  });

  it('is apart for the shortest time again once it has lived well on a usual stream', () => {
    const setting = apartTwice();
    expect(setting.answer(0, 'sds').at(1000).end(0)).to.deep.equal([]);
    setting.open(0).ask('sds');
    expect(setting.end(0)).to.deep.equal(['sds 0→4']);
    expect(setting.open(4).quarantine.probation(4)).to.equal(well);
  });

  for (const [what, live] of [
    [
      'its stream ended soon after it came',
      (one: Setting) => [one.at(70).end(0), one.open(0).at(1000).end(0), one.open(0)],
    ],
    ['it is asked for something new all the time', (one: Setting) => one.at(995).ask('sds')],
  ] as const)
    it(`is apart for the shortest time again once it has lived well, although ${what}`, () => {
      const setting = apartTwice();
      live(setting.answer(0, 'sds'));
      setting.ask('sds');
      expect(setting.at(1000).end(0)).to.deep.equal(['sds 0→4']);
      expect(setting.open(4).quarantine.probation(4)).to.equal(well);
    });

  it('is apart no longer for it when a control plane that is away refuses it many times', () => {
    const setting = running();
    setting.ask('sds');
    setting.end(0);
    for (const _ of [1, 2, 3, 4, 5]) setting.open(4).end(4);
    expect(setting.open(4).quarantine.probation(4)).to.equal(well);
  });

  it('while something is under quarantine, what is new is tried apart, and what is known is not', () => {
    const setting = running();
    setting.ask('sds');
    setting.end(0);
    expect(setting.ask('lds', 'rds x', 'lds x', 'cds')).to.deep.equal([5, 6, 7, 0]);
    expect(setting.suspects).to.deep.equal(['sds']);
  });

  it('a client that asks for ever more types opens no more than so many streams', () => {
    const setting = running();
    const streams = new Set<number>();
    for (let index = 0; index < 100; index++) {
      const [streamId = 0] = setting.ask(`debug-${index}`);
      streams.add(streamId);
      setting.open(streamId).end(streamId);
      for (const { streamId: isolated } of setting.quarantine.suspects()) streams.add(isolated);
    }
    expect([...streams].filter((streamId) => streamId > 3).length).to.equal(8);
  });

  it('what nobody wants any more makes place', () => {
    const setting = running();
    for (let index = 0; index < 20; index++) {
      setting.ask(`debug-${index}`);
      setting.quarantine.removeInterest(typeUrl(`debug-${index}`), 'wildcard');
    }
    setting.open(2).at(120).ask('debug');
    expect(setting.end(2).at(-1)).to.match(/^debug 2→\d+$/);
  });

  describe('a type that the relay does not know', () => {
    it('is never on a stream of those that it knows', () => {
      expect(new Setting().ask('cds', 'debug', 'debug x', 'cds x', 'other x')).to.deep.equal([0, 2, 3, 1, 2]);
    });

    it('is tried apart from others of its kind, which go on', () => {
      const setting = running();
      setting.ask('names');
      setting.open(2).answer(2, 'names').at(120).ask('debug');
      expect(setting.end(2)).to.deep.equal(['debug 2→12']);
    });

    it('under quarantine has no part in where others are asked', () => {
      const setting = running();
      setting.ask('names', 'debug');
      setting.open(2).answer(2, 'names').end(2);
      expect(setting.suspects).to.deep.equal(['debug']);
      expect(setting.ask('lds', 'rds x', 'other')).to.deep.equal([0, 0, 13]);
    });

    for (const pause of [1, 40, 600]) {
      it(`invented every ${pause} s, each ending its stream, is asked next to known ones never`, () => {
        const setting = running();
        setting.ask('names');
        setting.open(2).answer(2, 'names');
        const ends = new Map<number, number>();
        for (let index = 0; index < 50; index++) {
          const [streamId = 0] = setting.at(120 + index * pause).ask(`debug-${index}`);
          ends.set(streamId, (ends.get(streamId) ?? 0) + 1);
          if (streamId > 3) setting.open(streamId);
          setting.end(streamId);
          setting.open(streamId);
        }
        expect([...ends.keys()].filter((streamId) => streamId <= 1)).to.deep.equal([]);
        // Those that are still asked are suspected: from the first on, the next ones are apart from `names`, too.
        expect(ends.get(2)).to.equal(1);
      });
    }

    it('is asked where others are tried when no more streams may be opened, never on a usual one', () => {
      const setting = running();
      setting.ask('names');
      setting.open(2).answer(2, 'names').at(120);
      for (let index = 0; index < 9; index++) {
        const [streamId = 0] = setting.ask(`debug-${index}`);
        setting.open(streamId).end(streamId);
      }
      const [wildcard = 0, named = 0] = setting.ask('late', 'late x');
      expect(wildcard).to.be.above(3);
      expect(named).to.be.above(3).and.not.to.equal(wildcard);
    });

    it('does not take the streams on which known ones are tried', () => {
      const setting = running();
      for (let index = 0; index < 20; index++) {
        const [streamId = 0] = setting.ask(`debug-${index}`);
        setting.open(streamId).end(streamId);
        setting.open(streamId).end(streamId);
      }
      const used = [...setting.quarantine.suspects()].map(({ streamId }) => streamId);
      setting.ask('sds x');
      setting.end(0);
      expect(used).not.to.include(setting.quarantine.streamOf(typeOf('sds'), 'named'));
    });
  });

  it('a known type that has ended streams is remembered, however many a client invents meanwhile', () => {
    const setting = running();
    setting.ask('sds x');
    setting.end(0);
    setting.quarantine.removeInterest(typeOf('sds'), 'named');
    for (let index = 0; index < 600; index++) {
      setting.ask(`debug-${index}`);
      setting.quarantine.removeInterest(typeOf(`debug-${index}`), 'wildcard');
    }
    expect(setting.ask('sds x')).to.deep.equal([4]);
  });
});
