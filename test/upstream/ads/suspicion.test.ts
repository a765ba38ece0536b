import { expect } from 'chai';
import { type TypeUrl, typeUrl } from '../../../src/model/brand.ts';
import {
  type Relocation,
  type Role,
  type StreamEnd,
  Suspicion,
} from '../../../src/upstream/ads/suspicion.ts';

/** A stream must live for 30 s here. */
const well = 30_000;

/** A session's streams, in seconds from its beginning. */
class Setting {
  readonly suspicion = new Suspicion(well);
  #now = 0;

  at(seconds: number): this {
    this.#now = seconds * 1000;
    return this;
  }

  /** Each is subscribed and asked, at once where its stream is open: `cds` is its wildcard, `cds x` a name of it. */
  ask(...units: readonly string[]): readonly number[] {
    return units.map((unit) => {
      const [type, role] = parse(unit);
      const lane = this.suspicion.want(type, role, this.#now);
      this.suspicion.asked(lane, type, this.#now);
      return lane;
    });
  }

  open(lane: number): this {
    this.suspicion.opened(lane, this.#now);
    return this;
  }

  answer(lane: number, ...types: readonly string[]): this {
    for (const type of types) this.suspicion.answered(lane, typeUrl(type));
    return this;
  }

  end(lane: number, how: StreamEnd = 'ended'): readonly string[] {
    return told(this.suspicion.ended(lane, how, 'no', this.#now));
  }

  survive(lane: number): readonly string[] {
    return told(this.suspicion.survived(lane, this.#now));
  }

  get suspects(): readonly string[] {
    return [...this.suspicion.suspects()].map(({ type }) => type);
  }
}

function parse(unit: string): readonly [TypeUrl, Role] {
  const [type = '', name] = unit.split(' ');
  return [typeUrl(type), name === undefined ? 'wildcard' : 'named'];
}

const told = (moves: readonly Relocation[]): readonly string[] =>
  moves.map(({ type, from, to }) => `${type} ${from}→${to}`);

/** CDS and EDS have lived for a minute on the first stream. */
function running(): Setting {
  const setting = new Setting();
  setting.ask('cds', 'eds x');
  setting.open(0).answer(0, 'cds');
  return setting.at(60);
}

describe('which stream asks what', () => {
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
          setting.suspicion.closed(0, 60_000);
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
          setting.suspicion.closed(0, 60_000);
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
    setting.ask('lds', 'debug');
    setting.answer(0, 'lds');
    expect(setting.at(61).end(0)).to.deep.equal(['debug 0→2']);
    expect(setting.suspects).to.deep.equal(['debug']);
  });

  it('what was answered is suspected, too, when streams end again and again', () => {
    const setting = running();
    setting.ask('debug');
    setting.answer(0, 'debug');
    expect(setting.end(0)).to.deep.equal([]);
    for (const _ of [1, 2]) expect(setting.open(0).answer(0, 'debug').end(0)).to.deep.equal([]);
    expect(setting.open(0).answer(0, 'debug').end(0)).to.deep.equal(['debug 0→2']);
  });

  it('what is apart together is halved until the one is found; what is answered goes back', () => {
    const setting = running();
    setting.ask('a', 'b', 'c', 'd', 'e');
    expect(setting.end(0)).to.deep.equal(['a 0→2', 'b 0→2', 'c 0→2', 'd 0→2', 'e 0→2']);
    setting.open(0).open(2).answer(2, 'b');
    expect(setting.end(2)).to.deep.equal(['b 2→0', 'd 2→3', 'e 2→3']);
    setting.open(2).open(3);
    expect(setting.end(3)).to.deep.equal(['e 3→4']);
    setting.open(3).open(4);
    expect(setting.end(3), 'found').to.deep.equal([]);
    expect(setting.suspects).to.deep.equal(['a', 'c', 'd', 'e']);
    setting.at(100);
    expect(setting.survive(2)).to.deep.equal(['a 2→0', 'c 2→0']);
    expect(setting.survive(4)).to.deep.equal(['e 4→0']);
    expect(setting.suspects).to.deep.equal(['d']);
  });

  it('is halved on the usual stream where nothing would remain there, from the second end', () => {
    const setting = new Setting();
    setting.ask('a', 'b', 'c');
    expect(setting.open(0).end(0)).to.deep.equal([]);
    expect(setting.open(0).end(0)).to.deep.equal(['b 0→2', 'c 0→2']);
    expect(setting.open(0).end(0)).to.deep.equal(['a 0→3']);
  });

  it('is apart for twice as long with each stream of its own that ended', () => {
    const setting = running();
    setting.ask('debug');
    setting.end(0);
    const probations = Array.from({ length: 9 }, () => {
      setting.open(2);
      const probation = setting.suspicion.probation(2);
      setting.end(2);
      return (probation ?? 0) / well;
    });
    expect(probations).to.deep.equal([1, 2, 4, 8, 16, 32, 64, 64, 64]);
    expect(setting.suspicion.probation(0)).to.equal(undefined);
  });

  it('while something is under suspicion, what is new is tried apart, and what is known is not', () => {
    const setting = running();
    setting.ask('debug');
    setting.end(0);
    expect(setting.ask('lds', 'rds x', 'lds x', 'cds')).to.deep.equal([3, 3, 4, 0]);
    expect(setting.suspects).to.deep.equal(['debug']);
  });

  it('a client that asks for ever more types opens no more than so many streams', () => {
    const setting = running();
    const lanes = new Set<number>();
    for (let index = 0; index < 100; index++) {
      const [lane = 0] = setting.ask(`debug-${index}`);
      lanes.add(lane);
      setting.open(lane).end(lane);
      setting.open(0);
    }
    expect([...lanes].filter((lane) => lane > 1).length).to.be.at.most(8);
    expect(setting.suspicion.lane(typeUrl('cds'), 'wildcard')).to.equal(0);
  });

  it('what nobody wants any more makes place', () => {
    const setting = running();
    for (let index = 0; index < 20; index++) {
      setting.ask(`debug-${index}`);
      setting.suspicion.unwant(typeUrl(`debug-${index}`), 'wildcard');
    }
    setting.ask('debug');
    expect(setting.end(0).at(-1)).to.match(/^debug 0→\d+$/);
  });
});
