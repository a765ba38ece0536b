import { expect } from 'chai';
import { Conditions } from '../../src/observe/conditions.ts';
import { createLog } from '../../src/observe/log.ts';
import type { LogLevel } from '../../src/observe/log-levels.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

function capture(level: LogLevel = 'info') {
  const lines: string[] = [];
  const log = createLog({ level, write: (line) => lines.push(line) });
  const parsed = () => lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  return { log, lines, parsed };
}

describe('log', () => {
  it('writes one JSON line per message, with level, time, message and fields', () => {
    const { log, lines, parsed } = capture();
    log.warn('upstream lost', { upstream: 'central', attempt: 3 });
    expect(lines).to.have.length(1);
    expect(lines[0]).to.match(/^[^\n]*\n$/);
    const [line] = parsed();
    expect(line).to.include({ level: 'warn', message: 'upstream lost', upstream: 'central', attempt: 3 });
    expect(new Date(String(line?.['time'])).getTime()).to.be.closeTo(Date.now(), 60_000);
  });

  it('keeps a message with line ends on one line', () => {
    const { log, lines } = capture();
    log.info('a\nb', { name: 'c\nd' });
    expect(lines.join('').match(/\n/g)).to.have.length(1);
  });

  it('leaves out what is below its level, and says nothing when silent', () => {
    const { log, lines } = capture('warn');
    log.debug('no');
    log.info('no');
    log.error('yes');
    expect(lines).to.have.length(1);
    const silent = capture('silent');
    silent.log.error('no');
    expect(silent.lines).to.be.empty;
  });

  it('writes an error with its message and stack', () => {
    const { log, parsed } = capture();
    log.error('failed', { error: new Error('why') });
    expect(parsed()[0]?.['error']).to.include({ message: 'why' }).and.to.have.property('stack');
  });

  it("puts a child log's fields into every line", () => {
    const { log, parsed } = capture();
    log.child({ upstream: 'central' }).info('hello');
    expect(parsed()[0]).to.include({ upstream: 'central', message: 'hello' });
  });
});

describe('conditions', () => {
  it('are said once per change, not per retry', () => {
    const { log, parsed } = capture();
    const conditions = new Conditions(log);
    for (let retry = 0; retry < 100; retry++) conditions.set('central', 'down', 'warn', 'upstream lost');
    conditions.set('central', 'up', 'info', 'upstream connected');
    conditions.set('central', 'up', 'info', 'upstream connected');
    conditions.set('central', 'down', 'warn', 'upstream lost');
    expect(parsed().map((line) => line['message'])).to.deep.equal([
      'upstream lost',
      'upstream connected',
      'upstream lost',
    ]);
  });

  it('do not mix up keys, and are said again once forgotten', () => {
    const { log, lines } = capture();
    const conditions = new Conditions(log);
    expect(conditions.set('a', 'down', 'warn', 'm')).to.be.true;
    expect(conditions.set('b', 'down', 'warn', 'm')).to.be.true;
    conditions.forget('a');
    expect(conditions.set('a', 'down', 'warn', 'm')).to.be.true;
    expect(lines).to.have.length(3);
  });

  it('that give their causes in turn are said once for each cause, and again once forgotten', () => {
    const { log, parsed } = capture();
    const conditions = new Conditions(log);
    const retry = () => {
      for (const cause of ['reset', 'refused']) conditions.add('central', cause, 'warn', cause);
    };
    for (let retries = 0; retries < 100; retries++) retry();
    conditions.forget('central');
    retry();
    expect(parsed().map((line) => line['message'])).to.deep.equal(['reset', 'refused', 'reset', 'refused']);
    for (let cause = 0; cause < 1000; cause++) conditions.add('other', String(cause), 'warn', 'm');
    expect(parsed().length, 'causes that are never the same twice').to.be.lessThan(30);
  });

  it('are remembered up to a bound', () => {
    const { log, lines } = capture();
    const conditions = new Conditions(log, 10);
    for (let key = 0; key < 100; key++) conditions.set(String(key), 'x', 'info', 'm');
    expect(conditions.set('99', 'x', 'info', 'm')).to.be.false;
    expect(conditions.set('0', 'x', 'info', 'm')).to.be.true;
    expect(lines).to.have.length(101);
  });

  it('what changes all the time is 20 lines a minute; the next line says how many were held back', () => {
    const { log, parsed } = capture();
    const clock = new VirtualClock();
    const conditions = new Conditions(log, 10, clock);
    const flicker = (): void => {
      for (let change = 0; change < 100; change++) conditions.set('nack', String(change % 2), 'warn', 'm');
    };
    flicker();
    expect(parsed()).to.have.length(20);
    conditions.set('another', 'x', 'warn', 'm');
    expect(parsed()).to.have.length(21);
    clock.advance(60_000);
    flicker();
    expect(parsed()).to.have.length(41);
    expect(parsed()[21]).to.include({ held_back: 80 });
    expect(parsed()[22]).to.not.have.property('held_back');
  });

  it('of which clients make any number have 20 lines a minute together', () => {
    const { log, parsed } = capture();
    const clock = new VirtualClock();
    const conditions = new Conditions(log, 1000, clock);
    const begin = (named: string) => conditions.set(named, 'is', 'warn', 'm', {}, 'clients_reject');
    for (let at = 0; at < 100; at++) expect(begin(String(at))).to.equal(true);
    expect(begin('99'), 'it lasts').to.equal(false);
    expect(parsed()).to.have.length(20);
    conditions.set('disk', 'is', 'warn', 'm', {}, 'disk');
    expect(parsed()).to.have.length(21);
    clock.advance(60_000);
    begin('another');
    expect(parsed()[21]).to.include({ held_back: 80 });
  });
});
