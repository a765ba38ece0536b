import { X509Certificate } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { createLog } from '../../src/observe/log.ts';
import { SessionKeeper } from '../../src/session-keeper.ts';
import type { TlsSessions } from '../../src/wire/tls-sessions.ts';
import { configOf, temporaryDirectory } from '../config/support.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const hourMs = 3_600_000;
const own = issueCertificate({ name: 'relay' });

describe('what is kept of TLS sessions', () => {
  const directory = temporaryDirectory();
  const path = (name: string): string => join(directory(), name);
  let clock: VirtualClock;
  let lines: string[];

  const put = (identity: Issued): void => {
    writeFileSync(path('relay.crt'), identity.certificate);
    writeFileSync(path('relay.key'), identity.privateKey);
  };
  beforeEach(() => {
    clock = new VirtualClock();
    clock.advance(Math.ceil(Date.now() / hourMs) * hourMs - clock.now());
    lines = [];
    put(own);
  });

  function keeper(more: object = {}, rest: object = { session_tickets: false }): SessionKeeper {
    const tls = { certificate: path('relay.crt'), private_key: path('relay.key') };
    const config = configOf(
      JSON.stringify({
        xds: { tls: { ...tls, ...more } },
        rest: { tls: { ...tls, ...rest } },
        upstreams: [{ name: 'files', filesystem: { path: directory() } }],
      }),
    );
    return new SessionKeeper(config, clock, createLog({ write: (line) => lines.push(line) }));
  }
  function started(sealed?: Readonly<Record<string, string>>): SessionKeeper {
    const made = keeper();
    made.start(sealed);
    return made;
  }
  const of = (made: SessionKeeper): TlsSessions => {
    const sessions = made.of('xds');
    if (sessions === undefined) throw new Error('xds resumes no sessions');
    return sessions;
  };
  const keys = (made: SessionKeeper): readonly (readonly [number, string])[] =>
    of(made)
      .keys.entries()
      .map(([hour, key]) => [hour, Buffer.from(key).toString('hex')]);

  it('a key for this hour and for the next; the last one stays for an hour', () => {
    const made = started();
    let changes = 0;
    made.onChange(() => changes++);
    const hour = clock.now() / hourMs;
    const first = keys(made);
    expect(first.map(([at]) => at)).to.deep.equal([hour, hour + 1]);
    clock.advance(hourMs - 1);
    expect([keys(made), changes]).to.deep.equal([first, 0]);
    clock.advance(600_000);
    const second = keys(made);
    expect(second.map(([at]) => at)).to.have.members([hour, hour + 1, hour + 2]);
    expect(second).to.include.deep.members([...first]);
    clock.advance(hourMs);
    expect(keys(made).map(([at]) => at)).to.have.members([hour + 1, hour + 2, hour + 3]);
    expect(new Set(keys(made).map(([, key]) => key)).size).to.equal(3);
    expect(changes).to.equal(2);
    made.stop();
  });

  it('a listener whose tickets are off has none', () => {
    expect(started().of('rest')).to.equal(undefined);
  });

  it('with a secret nothing is drawn', () => {
    writeFileSync(path('secret'), Buffer.alloc(32));
    const made = keeper({ session_ticket_secret_file: path('secret') });
    made.start();
    expect(keys(made)).to.deep.equal([]);
  });

  it('a restart has the same keys and intermediates, with another certificate of the same key too', () => {
    const before = started();
    const middle = new X509Certificate(issueCertificate({ name: 'middle', authority: true }).certificate);
    before.shown('xds', middle.raw);
    const sealed = before.sealed();
    put(issueCertificate({ name: 'relay', key: own }));
    const after = started(sealed);
    expect(keys(after)).to.deep.equal(keys(before));
    expect(
      of(after)
        .intermediates.values()
        .toArray()
        .map(({ subject }) => subject),
    ).to.deep.equal(['CN=middle']);
    expect(lines).to.deep.equal([]);
  });

  it('of many intermediates a restart has those that clients have shown last', () => {
    const before = started();
    const made = Array.from({ length: 33 }, (_, number) => {
      const issued = issueCertificate({ name: `middle ${number}`, key: own, authority: true });
      return new X509Certificate(issued.certificate);
    });
    const [first] = made;
    if (first === undefined) throw new Error('none was made');
    for (const { raw } of made) before.shown('xds', raw);
    of(before).intermediates.see(first);
    const after = of(started(before.sealed())).intermediates.values();
    expect(after.map(({ subject }) => subject).toArray()).to.deep.equal(
      [...made.slice(2), first].map(({ subject }) => subject),
    );
  });

  it('a key that was replaced while the relay ran is the one that the next start has', () => {
    const before = started();
    put(issueCertificate({ name: 'relay' }));
    expect(keys(started(before.sealed()))).to.deep.equal(keys(before));
  });

  it('what is kept is not readable: neither the keys nor the intermediates', () => {
    const made = started();
    const middle = new X509Certificate(issueCertificate({ name: 'middle', authority: true }).certificate);
    made.shown('xds', middle.raw);
    const { xds = '' } = made.sealed();
    const bytes = Buffer.from(xds, 'base64').toString('latin1') + xds;
    for (const secret of [
      ...of(made)
        .keys.entries()
        .map(([, key]) => Buffer.from(key)),
      middle.raw,
    ]) {
      for (const encoding of ['latin1', 'hex', 'base64'] as const)
        expect(bytes).to.not.contain(secret.toString(encoding).slice(4, 16));
    }
    expect(made.sealed()['xds']).to.not.equal(xds);
  });

  it('what another key has sealed, or is damaged, or is of another listener, is dropped with one line', () => {
    const before = started();
    const { xds = '' } = before.sealed();
    const damaged = Buffer.from(xds, 'base64');
    damaged[damaged.length - 1] = (damaged.at(-1) ?? 0) ^ 1;
    const flipped = Buffer.from(xds, 'base64');
    flipped[0] = (flipped[0] ?? 0) ^ 1;
    const both = keeper({}, {});
    both.start();
    const { rest = '' } = both.sealed();
    const unusable = [
      rest,
      damaged.toString('base64'),
      flipped.toString('base64'),
      xds.slice(0, 20),
      '',
      '?',
    ];
    for (const text of unusable) {
      lines = [];
      const after = started({ xds: text });
      expect(keys(after)).to.have.length(2);
      expect(keys(after).filter(([, key]) => keys(before).some(([, known]) => known === key))).to.deep.equal(
        [],
      );
      expect(lines).to.have.length(1);
      expect(lines[0]).to.contain('TLS sessions of before the restart are not resumed');
    }
    put(issueCertificate({ name: 'relay' }));
    lines = [];
    expect(
      keys(started({ xds })).some(([, key]) => keys(before).some(([, known]) => known === key)),
    ).to.equal(false);
    expect(lines).to.have.length(1);
    for (const [, key] of keys(before)) expect(lines[0]).to.not.contain(key.slice(0, 8));
  });

  it('keys that are too old are dropped, and so are intermediates that have ended', () => {
    const before = started();
    const ended = new X509Certificate(
      issueCertificate({ name: 'middle', days: 1 / 24, authority: true }).certificate,
    );
    before.shown('xds', ended.raw);
    const sealed = before.sealed();
    clock.advance(3 * hourMs);
    const after = started(sealed);
    const hour = clock.now() / hourMs;
    expect(keys(after).map(([at]) => at)).to.deep.equal([hour, hour + 1]);
    expect(of(after).intermediates.values().toArray()).to.deep.equal([]);
  });
});
