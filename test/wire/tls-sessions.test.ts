import { randomBytes, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { inspect } from 'node:util';
import { expect } from 'chai';
import type { ListenerTls } from '../../src/wire/client-connections.ts';
import type { GrpcServer } from '../../src/wire/http2-server.ts';
import type { Peer } from '../../src/wire/server-stream.ts';
import { checkTlsMaterial } from '../../src/wire/tls-material.ts';
import { hourOf, TlsSessions } from '../../src/wire/tls-sessions.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import {
  sharedSessions as sessionsAt,
  type TlsClientOptions,
  type TlsVersion,
  tlsVersions,
  type Visit,
  visit,
} from '../support/tls-clients.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { closeServers, echo, serve } from './serve.ts';

const hourMs = 3_600_000;
const hour = 1 / 24;
const authority = issueCertificate({ name: 'authority', authority: true });
const other = issueCertificate({ name: 'another authority', authority: true });
const middle = issueCertificate({ name: 'middle', authority: true, issuer: authority });
const relay = issueCertificate({ name: 'relay', issuer: authority, dns: ['localhost'] });
const client = (options: { issuer?: Issued; days?: number } = {}): Issued =>
  issueCertificate({ name: 'client', issuer: authority, uris: ['spiffe://example.com/a'], ...options });
const own = client();

/** Milliseconds since the epoch. Certificates last from the moment that they are made. */
const endOf = ({ certificate }: Issued): number => new X509Certificate(certificate).validToDate.getTime();

const pem = (...all: readonly Issued[]): Buffer =>
  Buffer.from(all.map(({ certificate }) => certificate).join(''));

function material(identity = relay, ...ca: readonly Issued[]) {
  return {
    certificate: pem(identity),
    privateKey: Buffer.from(identity.privateKey),
    ca: pem(...(ca.length === 0 ? [authority] : ca)),
  };
}

describe('TLS sessions', () => {
  let clock: VirtualClock;
  let peers: Peer[];
  let counts: string[];

  beforeEach(() => {
    clock = new VirtualClock();
    clock.advance(Date.now() - clock.now());
    peers = [];
    counts = [];
  });
  afterEach(closeServers);

  const sharedSessions = (listener?: 'xds' | 'rest'): TlsSessions => sessionsAt(clock.now(), listener);
  /** As a process of the relay. */
  const listen = (tls: Partial<ListenerTls> = {}): Promise<GrpcServer> =>
    serve({
      clock,
      refused: (reason) => counts.push(reason),
      shookHands: (how) => counts.push(how),
      accept: () => (stream) => {
        peers.push(stream.peer);
        stream.write(Buffer.alloc(5));
        echo(stream);
      },
      tls: { ...material(), requireClientCertificate: true, ...tls },
    });
  const asks = (server: GrpcServer, more: Omit<TlsClientOptions, 'ca'>): Promise<Visit> =>
    visit(server.address, { ca: authority, own, ...more });
  const resumes = async (server: GrpcServer, version: TlsVersion, { session }: Visit): Promise<boolean> => {
    expect(session, 'there is a ticket').to.not.equal(undefined);
    const { served, resumed } = await asks(server, { version, session });
    expect(served).to.equal(true);
    return resumed;
  };

  for (const version of tlsVersions) {
    describe(version, () => {
      it('are resumed with the identity of their certificate, and counted', async () => {
        const server = await listen({ sessions: sharedSessions() });
        const first = await asks(server, { version });
        const second = await asks(server, { version, session: first.session });
        expect([first.resumed, second.resumed]).to.deep.equal([false, true]);
        expect(counts).to.deep.equal(['full', 'resumed']);
        expect(peers.map(({ uriSans }) => uriSans)).to.deep.equal([
          ['spiffe://example.com/a'],
          ['spiffe://example.com/a'],
        ]);
      });

      it('are resumed by another process with the same keys, and with another certificate of the listener', async () => {
        const sessions = sharedSessions();
        const [one, two] = [await listen({ sessions }), await listen({ sessions })];
        const first = await asks(one, { version });
        expect(await resumes(two, version, first)).to.equal(true);
        const next = issueCertificate({ name: 'relay', issuer: authority, dns: ['localhost'] });
        two.setTls(material(next));
        expect(await resumes(two, version, first)).to.equal(true);
      });

      it('of one listener are no sessions of another', async () => {
        const [xds, rest] = [sharedSessions('xds'), sharedSessions('rest')];
        rest.keys.take(xds.keys.entries());
        const first = await asks(await listen({ sessions: xds }), { version });
        expect(await resumes(await listen({ sessions: rest }), version, first)).to.equal(false);
      });

      it('end with any change of ca, in every process, and not with the order of its file', async () => {
        const sessions = sharedSessions();
        const both = material(relay, authority, other);
        const one = await listen({ sessions, ...both });
        const first = await asks(one, { version });
        expect(
          await resumes(await listen({ sessions, ...material(relay, other, authority) }), version, first),
        ).to.equal(true);
        expect(await resumes(await listen({ sessions }), version, first)).to.equal(false);
        one.setTls(material());
        expect(await resumes(one, version, first)).to.equal(false);
      });

      it('without a verified certificate give no identity, and are not resumed where one is required', async () => {
        const sessions = sharedSessions();
        const lax = await listen({ sessions, requireClientCertificate: false });
        const { session, served } = await asks(lax, { version, own: undefined });
        expect(served).to.equal(true);
        expect((await asks(lax, { version, own: undefined, session })).resumed).to.equal(true);
        const unverified = { version, own: client({ issuer: other }) };
        const foreign = await asks(lax, unverified);
        expect((await asks(lax, { ...unverified, session: foreign.session })).resumed).to.equal(true);
        expect(peers.splice(2).map(({ uriSans }) => uriSans)).to.deep.equal([[], []]);
        expect(peers.map(({ uriSans }) => uriSans)).to.deep.equal([[], []]);
        const strict = await listen({ sessions });
        expect((await asks(strict, { version, own: undefined, session })).served).to.equal(false);
        expect(peers).to.have.length(2);
        // One that has a certificate shows it.
        const shown = await asks(strict, { version, session });
        expect([shown.resumed, shown.served]).to.deep.equal([false, true]);
      });

      it('are resumed by a ticket of this hour or of the last, and not by one before', async () => {
        const sessions = sharedSessions();
        const server = await listen({ sessions });
        const first = await asks(server, { version });
        clock.advance(hourMs);
        sessions.keys.renew(hourOf(clock.now()));
        expect(await resumes(server, version, first)).to.equal(true);
        const second = await asks(server, { version });
        clock.advance(hourMs);
        sessions.keys.renew(hourOf(clock.now()));
        expect(await resumes(server, version, first)).to.equal(false);
        expect(await resumes(server, version, second)).to.equal(true);
      });

      it('of a secret are resumed by all that have it, a clock that is ahead or behind included, until it is another one', async () => {
        const ticketSecret = randomBytes(32);
        const replica = (): Promise<GrpcServer> => listen({ sessions: new TlsSessions('xds'), ticketSecret });
        const [one, two] = [await replica(), await replica()];
        const first = await asks(one, { version });
        expect(await resumes(two, version, first)).to.equal(true);
        const stranger = await listen({ sessions: new TlsSessions('xds'), ticketSecret: randomBytes(32) });
        expect(await resumes(stranger, version, first)).to.equal(false);

        clock.advance(hourMs);
        const ahead = await asks(two, { version });
        expect(await resumes(one, version, first)).to.equal(true);
        clock.advance(-hourMs);
        expect(await resumes(one, version, ahead)).to.equal(true);
        clock.advance(2 * hourMs);
        expect(await resumes(one, version, first)).to.equal(false);

        const last = await asks(one, { version });
        one.setTls({ ...material(), ticketSecret: randomBytes(32) });
        expect(await resumes(one, version, last)).to.equal(false);
        const short = checkTlsMaterial({ ...material(), ticketSecret: randomBytes(31) });
        expect(short.ok ? '' : short.error).to.equal(
          'session_ticket_secret_file has 31 bytes: it must have 32 or more, as from "openssl rand -base64 48"',
        );
      });

      it('there are none, and no ticket, where they are off', async () => {
        const server = await listen();
        const { session } = await asks(await listen({ sessions: sharedSessions() }), { version });
        const full = await asks(server, { version, session });
        expect(full).to.deep.equal({ session: undefined, resumed: false, served: true });
      });

      it('a ticket that nobody made, or that was changed, costs a full handshake', async () => {
        const sessions = sharedSessions();
        const server = await listen({ sessions });
        const foreign = await asks(await listen({ sessions: sharedSessions() }), { version });
        expect(await resumes(server, version, foreign)).to.equal(false);
        // With the name of its key, which everybody sees.
        const forged = new TlsSessions('xds');
        const names = sessions.keys.entries().map(([at, key]) => [at, key.subarray(0, 16)] as const);
        forged.keys.take(names.map(([at, name]) => [at, Buffer.concat([name, randomBytes(32)])]));
        const forgedTicket = await asks(await listen({ sessions: forged }), { version });
        expect(await resumes(server, version, forgedTicket)).to.equal(false);
      });

      it('are not resumed once their certificate has ended, and the client gets in with a new one', async () => {
        const sessions = sharedSessions();
        const server = await listen({ sessions });
        const ending = client({ days: hour / 2 });
        const { session } = await asks(server, { version, own: ending });
        expect((await asks(server, { version, own: ending, session })).resumed).to.equal(true);
        clock.advance(endOf(ending) - clock.now() + 1);
        sessions.keys.renew(hourOf(clock.now()));
        counts = [];
        const renewed = client();
        const refused = await asks(server, { version, own: renewed, session });
        expect([refused.resumed, refused.served]).to.deep.equal([true, false]);
        const again = await asks(server, { version, own: renewed, session: refused.session ?? session });
        expect([again.resumed, again.served]).to.deep.equal([false, true]);
        expect(counts).to.deep.equal(['resumed', 'certificate_ended', 'full']);
        // What it got then counts when its address may resume again.
        clock.advance(11 * 60_000);
        expect((await asks(server, { version, own: renewed, session: again.session })).resumed).to.equal(
          true,
        );
      });

      it('are resumed where who issued their certificate is known from another process, and else verified anew', async () => {
        const sessions = sharedSessions();
        const shown: Uint8Array[] = [];
        const from = new TlsSessions('xds', ({ raw }) => shown.push(raw));
        from.take(sessions.shared());
        const below = client({ issuer: middle });
        const one = await listen({ sessions: from });
        const { session } = await asks(one, { version, own: below, chain: [middle] });
        expect((await asks(one, { version, own: below, chain: [middle], session })).served).to.equal(true);
        expect(shown).to.have.length(1);

        const two = await listen({ sessions });
        counts = [];
        const refused = await asks(two, { version, own: below, chain: [middle], session });
        expect([refused.resumed, refused.served]).to.deep.equal([true, false]);
        const again = await asks(two, { version, own: below, chain: [middle], session });
        expect([again.resumed, again.served]).to.deep.equal([false, true]);
        expect(counts).to.deep.equal(['resumed', 'certificate_unknown_issuer', 'full']);

        const told = sharedSessions();
        told.take({ ...sessions.shared(), intermediates: shown });
        const three = await listen({ sessions: told });
        const known = await asks(three, { version, own: below, chain: [middle], session });
        expect([known.resumed, known.served]).to.deep.equal([true, true]);
      });

      it('are not resumed once what issued their certificate has ended', async () => {
        const sessions = sharedSessions();
        const server = await listen({ sessions });
        const short = issueCertificate({ name: 'short', authority: true, issuer: authority, days: hour / 2 });
        const below = client({ issuer: short });
        const { session } = await asks(server, { version, own: below, chain: [short] });
        clock.advance(endOf(short) - clock.now() + 1);
        sessions.keys.renew(hourOf(clock.now()));
        counts = [];
        const refused = await asks(server, { version, own: below, chain: [short], session });
        expect([refused.resumed, refused.served]).to.deep.equal([true, false]);
        expect(counts).to.deep.equal(['resumed', 'certificate_ended']);
      });

      it('are off on a Node without the callback', async () => {
        const context: unknown = Reflect.get(createSecureContext(), 'context');
        if (typeof context !== 'object' || context === null)
          throw new Error('a SecureContext has no context');
        const prototype = Reflect.getPrototypeOf(context) ?? {};
        const enable = Object.getOwnPropertyDescriptor(prototype, 'enableTicketKeyCallback');
        expect(enable).to.not.equal(undefined);
        Reflect.deleteProperty(prototype, 'enableTicketKeyCallback');
        try {
          const sessions = sharedSessions();
          for (const server of [await listen({ sessions }), await listen()]) {
            const { session } = await asks(server, { version });
            expect((await asks(server, { version, session })).resumed).to.equal(false);
          }
        } finally {
          if (enable !== undefined) Object.defineProperty(prototype, 'enableTicketKeyCallback', enable);
        }
      });
    });
  }

  it('their keys are in no text of them', () => {
    const sessions = sharedSessions();
    const shown = inspect(sessions, { depth: null, showHidden: true }) + JSON.stringify(sessions);
    for (const [, key] of sessions.keys.entries()) {
      for (const encoding of ['hex', 'base64'] as const)
        expect(shown).to.not.contain(Buffer.from(key).toString(encoding).slice(0, 8));
      expect(shown).to.not.contain(inspect(key).slice(-40, -10));
    }
  });
});
