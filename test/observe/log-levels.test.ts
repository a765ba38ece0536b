import { create } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { setLogLevel } from '../../src/admin/inspection.ts';
import { SetLogLevelRequestSchema } from '../../src/gen/distributary/admin/v1/log_pb.ts';
import { createLog } from '../../src/observe/log.ts';
import { type LogFormat, LogLevels, maxOverrides } from '../../src/observe/log-levels.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

function capture(levels = new LogLevels(), format: LogFormat = 'json', clock = new VirtualClock()) {
  const lines: string[] = [];
  const log = createLog({ levels, format, clock, write: (line) => lines.push(line) });
  return { log, lines, clock };
}

describe('log levels at run time', () => {
  it('a level for all lines holds for its time, in child logs too', () => {
    const clock = new VirtualClock();
    const levels = new LogLevels('warn', clock);
    const { log, lines } = capture(levels);
    const child = log.child({ upstream: 'central' });
    child.debug('before');
    levels.override({ node: undefined, level: 'debug', milliseconds: 1000 });
    child.debug('meanwhile');
    clock.step(-3_600_000);
    clock.advance(1000);
    child.debug('after');
    child.warn('still');
    expect(lines.map((line) => /"message":"(\w+)"/.exec(line)?.[1])).to.deep.equal(['meanwhile', 'still']);
  });

  it('a level for a node is for lines about that node only, and wins over the one for all', () => {
    const clock = new VirtualClock();
    const levels = new LogLevels('info', clock);
    levels.override({ node: 'a', level: 'debug', milliseconds: 1000 });
    expect(levels.enables('debug', 'a')).to.be.true;
    expect(levels.enables('debug', 'b')).to.be.false;
    expect(levels.enables('debug')).to.be.false;
    levels.override({ node: undefined, level: 'error', milliseconds: 1000 });
    expect(levels.enables('debug', 'a')).to.be.true;
    expect(levels.enables('warn', 'b')).to.be.false;
    levels.end('a');
    expect(levels.enables('debug', 'a')).to.be.false;
  });

  it('a level for a node is for lines about a node that nobody knows yet, too', () => {
    const clock = new VirtualClock();
    const levels = new LogLevels('info', clock);
    const { log, lines } = capture(levels, 'json', clock);
    levels.override({ node: 'quiet', level: 'error', milliseconds: 9000 });
    expect(levels.enables('info', null)).to.be.true;
    expect(levels.enables('debug', null)).to.be.false;
    levels.override({ node: 'a', level: 'debug', milliseconds: 1000 });
    log.debug('refused', { node: null });
    log.debug('about nobody');
    clock.advance(1000);
    log.debug('too late', { node: null });
    expect(lines.map((line) => /"message":"([^"]+)"/.exec(line)?.[1])).to.deep.equal(['refused']);
  });

  it('has a bound on nodes, which those that are over do not count for', () => {
    const clock = new VirtualClock();
    const levels = new LogLevels('info', clock);
    const add = (name: string): boolean =>
      levels.override({ node: name, level: 'debug', milliseconds: 1000 });
    for (let node = 0; node < maxOverrides; node++) expect(add(`n${node}`)).to.be.true;
    expect(add('one more')).to.be.false;
    expect(add('n1')).to.be.true;
    clock.advance(2000);
    expect(levels.overrides()).to.be.empty;
    expect(add('one more')).to.be.true;
  });

  it('a change is in the log with who has made it: by the level that writes more', () => {
    for (const [initial, level] of [
      ['info', 'error'],
      ['error', 'debug'],
    ] as const) {
      const levels = new LogLevels(initial);
      const { log, lines } = capture(levels);
      const request = create(SetLogLevelRequestSchema, { level, forSeconds: 5 });
      expect(setLogLevel(request, 'eve', levels, log).overrides[0]?.level).to.equal(level);
      expect(lines).to.have.length(1);
      expect(JSON.parse(lines[0] ?? '')).to.include({
        level: 'info',
        who: 'eve',
        log_level: level,
        for_node: 'all',
        seconds: 5,
      });
    }
  });

  it('a storm is 500 lines a second at the level debug; the next line says how many were left out', () => {
    const { log, lines, clock } = capture(new LogLevels('debug'));
    for (let stream = 0; stream < 2000; stream++) log.debug('a stream opens');
    log.info('not of that budget');
    expect(lines).to.have.length(501);
    clock.advance(1000);
    log.debug('a stream opens');
    log.debug('a stream opens');
    expect(JSON.parse(lines[501] ?? '')).to.include({ left_out: 1500 });
    expect(JSON.parse(lines[502] ?? '')).not.to.have.property('left_out');
  });
});

describe('the log as text', () => {
  const lineOf = (message: string, fields: object): string => {
    const { log, lines } = capture(new LogLevels(), 'text');
    log.warn(message, { ...fields });
    expect(lines).to.have.length(1);
    return lines[0] ?? '';
  };

  it('is time, level, message and fields', () => {
    expect(lineOf('upstream lost', { upstream: 'central', attempt: 3, reason: 'went away' })).to.match(
      /^\d{4}-\d\d-\d\dT[\d:.]+Z WARN {2}upstream lost upstream=central attempt=3 reason="went away"\n$/,
    );
  });

  it('lets a peer neither forge a line nor speak to the terminal', () => {
    const line = lineOf('bad\n2026-01-01T00:00:00Z INFO  all is well\u200b', {
      node: '\u001B[2J\u009B\u202Eevil',
      other: '\u00adno\u{e0041}\ud800',
      parameters: { 'a\nb': '\u2028' },
    });
    expect(line.trimEnd()).not.to.match(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u);
    expect(line).to.include('bad 2026').and.to.include('\\u202eevil').and.to.include('\\u2028');
  });

  it('does not speak to the terminal as JSON either, and says the same', () => {
    const lines: string[] = [];
    const fields = { node: '\u001B[2J\u009B\u202Eevil', error: '\u2028\u0085' };
    createLog({ write: (one) => lines.push(one) }).warn('a \u061Cclient', fields);
    const [line = ''] = lines;
    expect(line.trimEnd()).not.to.match(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u);
    expect(JSON.parse(line)).to.include({ message: 'a \u061Cclient', ...fields });
  });

  it('has errors with their stack, on the same line', () => {
    const line = lineOf('failed', { error: new Error('why') });
    expect(line).to.include('"message":"why"').and.to.include('log-levels.test.ts');
    expect(line.match(/\n/g)).to.have.length(1);
  });
});
