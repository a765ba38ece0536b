import { expect } from 'chai';
import { verdictOn } from '../../src/releases/judge.ts';
import { Rejections } from '../../src/releases/verdicts.ts';
import type { CanaryStream, Standing } from '../../src/releases/waiting.ts';
import { cpuSeconds } from '../support/cpu.ts';

const one = 'one';
const names = (...all: readonly string[]): ReadonlySet<string> => new Set(all);
const rejects = (isFinal = true, ...of: readonly string[]): Standing => ({
  kind: 'rejected',
  reason: 'lds web: no such filter',
  names: names(...(of.length === 0 ? ['web'] : of)),
  isFinal,
});
const accepted: Standing = { kind: 'accepted' };
const waits: Standing = { kind: 'waiting' };
const says = (standing: Standing, ...subscribed: readonly string[]): CanaryStream => ({
  stream: one,
  node: 'n1',
  classKey: 'one',
  standing,
  names: [names(...(subscribed.length === 0 ? ['web', 'shop'] : subscribed))],
});

const waiting = names('web', 'shop');

interface Row {
  readonly rule: string;
  readonly after: (rejections: Rejections) => void;
  readonly rejected: boolean;
}

/** One canary has rejected `web`. */
const rows: readonly Row[] = [
  { rule: 'it still rejects it', after: (r) => r.observe([says(rejects())], waiting), rejected: true },
  { rule: 'it accepts it after all', after: (r) => r.observe([says(accepted)], waiting), rejected: false },
  { rule: 'it is asked again', after: (r) => r.observe([says(waits)], waiting), rejected: true },
  { rule: 'it unsubscribes', after: (r) => r.observe([says(accepted, 'shop')], waiting), rejected: true },
  { rule: 'it is no canary any more', after: (r) => r.observe([], waiting), rejected: true },
  { rule: 'it ends', after: (r) => r.ended(one, rejects()), rejected: true },
  { rule: 'upstream says something else there', after: (r) => r.changed(names('web')), rejected: false },
  { rule: 'upstream says something else elsewhere', after: (r) => r.changed(names('shop')), rejected: true },
  {
    rule: 'it ends, and upstream says something else there',
    after: (r) => {
      r.ended(one, rejects());
      r.observe([], waiting);
      r.changed(names('web'));
    },
    rejected: false,
  },
  {
    rule: 'what it rejected is frozen, and then waits again',
    after: (r) => {
      r.observe([], names('shop'));
      expect(verdictOn(r.verdicts, names('shop'))?.reason).to.equal(undefined);
      r.observe([], waiting);
    },
    rejected: true,
  },
  {
    rule: 'a response of several names was rejected: the change of any of them ends it',
    after: (r) => {
      r.changed(names('web'));
      r.observe([says(rejects(true, 'web', 'shop'))], waiting);
      r.observe([], waiting);
      r.changed(names('shop'));
    },
    rejected: false,
  },
  {
    rule: 'it rejects what was mended since, and ends before it was sent that',
    after: (r) => {
      r.changed(names('web'));
      r.observe([says(rejects(false))], waiting);
      r.ended(one, rejects(false));
    },
    rejected: false,
  },
];

describe('rejections of canaries', () => {
  for (const { rule, after, rejected } of rows) {
    it(`${rule}: ${rejected ? 'rejected' : 'not rejected'}`, () => {
      const rejections = new Rejections();
      rejections.observe([says(rejects())], waiting);
      after(rejections);
      expect(verdictOn(rejections.verdicts, waiting)?.reason).to.equal(
        rejected ? 'lds web: no such filter' : undefined,
      );
    });
  }

  it('stay when they were taken back three times, until upstream says something else', () => {
    const rejections = new Rejections();
    const isRejected = (): boolean => verdictOn(rejections.verdicts, waiting) !== undefined;
    const turns = Array.from({ length: 5 }, () => {
      rejections.observe([says(rejects())], waiting);
      rejections.observe([says(accepted)], waiting);
      return isRejected();
    });
    expect(turns).to.deep.equal([false, false, true, true, true]);
    rejections.changed(names('web'));
    expect(isRejected()).to.equal(false);
    rejections.observe([says(rejects())], waiting);
    rejections.observe([says(accepted)], waiting);
    expect(isRejected()).to.equal(false);
  });

  it('of many who have left, each name stays rejected until it changes', () => {
    const rejections = new Rejections();
    const name = (at: number): ReadonlySet<string> => names(`n${at}`);
    for (let at = 0; at < 150; at++) {
      rejections.ended(one, { kind: 'rejected', reason: 'no', names: name(at), isFinal: true });
    }
    expect(rejections.verdicts.length).to.be.at.most(101);
    rejections.changed(name(120));
    for (const at of [0, 99, 119, 121, 149])
      expect(verdictOn(rejections.verdicts, name(at))?.reason, `n${at}`).to.equal('no');
    expect(verdictOn(rejections.verdicts, name(120))?.reason).to.equal(undefined);
  });

  it('of 20,000 canaries that each reject something of their own are not compared in pairs', () => {
    const canaries = Array.from(
      { length: 20_000 },
      (_, at): CanaryStream => ({
        ...says(rejects(true, 'web', `n${at}`), 'web', `n${at}`),
        stream: `s${at}`,
      }),
    );
    const all = new Set(['web', ...canaries.keys().map((at) => `n${at}`)]);
    const rejections = new Rejections();
    rejections.observe(canaries, all);
    const before = cpuSeconds();
    expect(rejections.verdicts).to.have.length(20_000);
    // In pairs it takes 20 s.
    expect(cpuSeconds() - before).to.be.below(2);
  });

  it('say nothing twice: what is within another is left out', () => {
    const rejections = new Rejections();
    const reject = (...all: readonly string[]): CanaryStream => ({
      ...says(rejects(true, ...all), ...all),
      stream: all.join(),
    });
    rejections.observe(
      [reject('a', 'b'), reject('b'), reject('b', 'c'), reject('b', 'a')],
      names('a', 'b', 'c'),
    );
    expect(rejections.verdicts.map((verdict) => [...verdict.names].join())).to.deep.equal(['a,b', 'b,c']);
  });
});
