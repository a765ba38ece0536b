import { expect } from 'chai';
import { startAdminServer } from '../../src/admin/admin-server.ts';
import type { HttpListener } from '../../src/admin/http-listener.ts';
import { discard, freeze, release, rollback, unfreeze } from '../../src/commands/operations.ts';
import { status } from '../../src/commands/status.ts';
import type { Terminal } from '../../src/commands/terminal.ts';
import { createLog } from '../../src/observe/log.ts';
import { rpcError } from '../../src/wire/connect.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { fakeInspector, OPEN, statusWith } from '../support/inspector.ts';

type Command = (argv: readonly string[], terminal: Terminal) => Promise<number>;

async function call(command: Command, ...argv: readonly string[]) {
  const texts = { out: '', err: '' };
  const terminal: Terminal = {
    out: (text) => {
      texts.out += text;
    },
    err: (text) => {
      texts.err += text;
    },
    environment: {},
  };
  return { code: await command(argv, terminal), ...texts };
}

const rollout = {
  state: 'HELD',
  since: '2026-01-01T00:00:00Z',
  upstream: 'central',
  types: ['lds'],
  names: ['web'],
  pending: 1,
  canaries: { total: 2, accepted: 1, rejected: 1, ended: 0 },
  wave: 0,
  waves: 1,
  checks: [],
  bakeSeconds: [30],
  noCanary: false,
  reason: 'lds web: no such <filter>',
  revision: 6,
  pendingRevision: 7,
  freezes: [
    {
      type: '',
      upstream: 'central',
      operator: 'spiffe://ops/ann (192.0.2.1:5000)',
      reason: 'black friday',
      since: '2026-01-01T00:00:00Z',
    },
  ],
  masked: 0,
  queued: 0,
  queuedTypes: [],
  queuedHeld: false,
};
const peer = {
  key: 'address 192.0.2.1',
  connections: 1,
  streams: 2,
  heldBytes: 0n,
  workPerSecond: 0,
  waits: false,
};
const accounts = [
  peer,
  { ...peer, key: 'address 192.0.2.2', heldBytes: 16n << 20n },
  { ...peer, key: 'address 192.0.2.3', workPerSecond: 50 },
  { ...peer, key: 'address 192.0.2.4', waits: true },
];
const held = statusWith({ rollout, accounts });

describe('a flag with an empty value', () => {
  it('is refused: of a variable that is not set, it would mean everything', async () => {
    for (const flags of [['--type', ''], ['--upstream=']]) {
      const { code, err } = await call(release, ...flags, '--reason', 'on purpose');
      expect(code).to.equal(2);
      expect(err).to.match(/^the value of --(type|upstream) is empty\n\nUsage: /);
    }
  });
});

describe('commands that change something', () => {
  const inspector = fakeInspector({ status: () => held });
  let refusing: HttpListener;
  let afterDiscard: HttpListener;
  let server: HttpListener;

  const listen = async (served: typeof inspector): Promise<HttpListener> => {
    const started = await startAdminServer({
      host: '127.0.0.1',
      port: 0,
      tls: undefined,
      access: OPEN,
      inspector: served,
      log: createLog({ level: 'silent' }),
    });
    if (!started.ok) throw new Error(started.error);
    return started.value;
  };

  before(async () => {
    server = await listen(inspector);
    const discarded = { ...rollout, state: 'IDLE', reason: 'bad listener', freezes: [], masked: 1 };
    afterDiscard = await listen(fakeInspector({ status: () => statusWith({ rollout: discarded }) }));
    const operate = (): never => {
      throw rpcError({ code: Code.FAILED_PRECONDITION, message: 'nothing waits' });
    };
    refusing = await listen(fakeInspector({ operate }));
  });
  after(async () => {
    await server.close();
    await afterDiscard.close();
    await refusing.close();
  });

  const urlOf = ({ address }: HttpListener): string => `http://${address}`;

  it('freeze, unfreeze, release and discard pass on what, and why; 0', async () => {
    const flags = ['--type', 'lds', '--upstream', 'central', '--reason', 'a test', '--admin', urlOf(server)];
    for (const [command, says] of [
      [freeze, 'frozen'],
      [unfreeze, 'unfrozen; 1 name pending'],
      [release, 'released: 1 name'],
      [discard, 'discarded: 1 name'],
    ] as const) {
      expect(await call(command, ...flags)).to.deep.equal({ code: 0, out: `${says}\n`, err: '' });
    }
    const asked = [...inspector.calls.operations];
    expect(JSON.parse((await call(release, ...flags, '--json')).out)).to.deep.equal({ released: 1 });
    expect(asked.map(({ verb }) => verb)).to.deep.equal(['freeze', 'unfreeze', 'release', 'discard']);
    for (const { type, upstream, reason, operator } of asked) {
      expect([type?.split('.').at(-1), upstream, reason]).to.deep.equal(['Listener', 'central', 'a test']);
      expect(operator).to.match(/^127\.0\.0\.1:\d+$/);
    }
  });

  it('what a restart would lose is done, with a warning on stderr and in the answer; 0', async () => {
    const warning = 'this does not survive a restart: the cache cannot be written (the disk is full)';
    const unkept = await listen(
      fakeInspector({
        notKept: () => warning,
        rollback: () => ({ revision: 4, changed: 1 }),
      }),
    );
    const flags = ['--reason', 'a test', '--admin', urlOf(unkept)];
    try {
      expect(await call(freeze, ...flags)).to.deep.equal({ code: 0, out: 'frozen\n', err: `${warning}\n` });
      for (const command of [unfreeze, release, discard])
        expect((await call(command, ...flags)).err).to.equal(`${warning}\n`);
      expect((await call(rollback, '--to', '3', ...flags)).err).to.equal(`${warning}\n`);
      expect(JSON.parse((await call(freeze, ...flags, '--json')).out)).to.deep.equal({ warning });
    } finally {
      await unkept.close();
    }
  });

  it('what the relay refuses is its reason on stderr; 1', async () => {
    const { code, out, err } = await call(release, '--reason', 'a test', '--admin', urlOf(refusing));
    expect({ code, out }).to.deep.equal({ code: 1, out: '' });
    expect(err).to.match(/: nothing waits\n$/);
  });

  it('without a reason, or with an unknown type, nothing is asked; 2', async () => {
    const before = inspector.calls.operations.length;
    expect(await call(freeze, '--admin', urlOf(server))).to.deep.include({ code: 2 });
    expect((await call(discard, '--reason', 'x', '--type', 'cdx')).err).to.match(/^unknown type "cdx"/);
    expect(inspector.calls.operations).to.have.length(before);
  });

  it('status tells of a change that is held, and of what is frozen: since when, who did it and why', async () => {
    const { out } = await call(status, '--admin', urlOf(server));
    expect(out).to.match(/^rollout: HELD for \d+ d.*: lds web: no such <filter>$/m);
    expect(out).to.match(/^pending: 1 name \(lds\) of central: web$/m);
    expect(out).to.match(/^canaries: 2 streams; 1 accepted, 1 rejected, 0 disconnected$/m);
    expect(out).to.match(/^critical: A change is held \(for \d+ d/m);
    expect(out).to.match(
      /^warning: Frozen: everything of central \(for \d+ d.*\n {2}black friday; by spiffe:\/\/ops\/ann \(192\.0\.2\.1:5000\)\n {2}\$ distributary unfreeze --reason "…"$/m,
    );
  });

  it('status tells of peers that hold much, cost much or are throttled, and of no other', async () => {
    const { out } = await call(status, '--admin', urlOf(server));
    const heavy = Array.from(out.matchAll(/^address (\S+) (.+)$/gm), ([, address, rest = '']) => [
      address,
      rest.trim().replaceAll(/ {2,}/g, ', '),
    ]);
    expect(heavy).to.deep.equal([
      ['192.0.2.2', '1, 2, 16.0 MiB, 0 ms/s'],
      ['192.0.2.3', '1, 2, 0 B, 50 ms/s'],
      ['192.0.2.4', '1, 2, 0 B, 0 ms/s, throttled'],
    ]);
  });

  it('status tells of what was discarded, which nobody waits for', async () => {
    const { out } = await call(status, '--admin', urlOf(afterDiscard));
    expect(out)
      .to.match(/^discarded: 1 name \(lds\) of central: web \(bad listener\)$/m)
      .and.not.match(/^canaries:/m);
  });

  it('the page tells of it too, escaped', async () => {
    const body = await (await fetch(urlOf(server))).text();
    expect(body)
      .to.match(/^rollout: HELD for /m)
      .and.include('lds web: no such &lt;filter&gt;');
    expect(body).to.include('1 accepted, 1 rejected').and.include('black friday');
  });
});
