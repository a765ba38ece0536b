import { expect } from 'chai';
import { StreamMetrics } from '../../src/downstream/stream-metrics.ts';
import { Conditions } from '../../src/observe/conditions.ts';
import { createLog } from '../../src/observe/log.ts';
import { LogLevels } from '../../src/observe/log-levels.ts';
import { Metrics } from '../../src/observe/metrics.ts';
import {
  InMemoryRelay,
  type InMemoryRelayOptions,
  namedHolder,
  put,
  type,
} from '../support/in-memory-relay.ts';

const hour = 3_600_000;
const day = 24 * hour;

/** A relay in virtual time, and the delays that it has measured. */
class MeasuredRelay {
  readonly metrics = new Metrics();
  readonly relay: InMemoryRelay;

  constructor(options: InMemoryRelayOptions = {}) {
    this.relay = new InMemoryRelay({
      ...options,
      measure: (clock) => {
        const log = createLog({ level: 'silent' });
        const { metrics } = this;
        const [conditions, logLevels] = [new Conditions(log), new LogLevels('silent')];
        const observing = { metrics, conditions, log, logLevels, traces: undefined };
        return new StreamMetrics(observing, clock, () => undefined);
      },
    });
  }

  after(milliseconds: number): void {
    this.relay.clock.advance(milliseconds);
    this.relay.settle();
  }

  clusters(state: Readonly<Record<string, string>>): void {
    this.relay.full('cds', state);
  }

  endpoints(name: string, content: string): void {
    this.relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), name, content)] });
  }

  /** How many responses of a type were sent. */
  sent(short: string): number {
    return this.relay.events.filter((event) => event === `response ${short}`).length;
  }

  /** How many delays there were, and their sum in seconds. */
  propagation(): Promise<readonly number[]> {
    return this.#measured('propagation_seconds');
  }

  acknowledged(short: string): Promise<readonly number[]> {
    return this.#measured('acknowledged_seconds', `{type="${short}"}`);
  }

  async #measured(name: string, labels = ''): Promise<readonly number[]> {
    const lines = (await this.metrics.text()).split('\n');
    return ['count', 'sum'].map((part) => {
      const start = `distributary_${name}_${part}${labels} `;
      return Number(lines.find((line) => line.startsWith(start))?.slice(start.length) ?? 0);
    });
  }
}

/** What the tests do with a client, whatever its protocol. */
interface Client {
  subscribe(short: string, names: readonly string[]): void;
  /** Answers everything that has come: how many responses that were. */
  accept(): number;
  reject(): void;
  /** Reads nothing until `read`. */
  stall(): void;
  read(): void;
}

function sotw(relay: InMemoryRelay): Client {
  const client = relay.sotw();
  const names = new Map<string, readonly string[]>();
  const answer = (errorDetail?: { code: number; message: string }): number => {
    const received = client.received();
    for (const { typeUrl, nonce: responseNonce } of received) {
      const resourceNames = [...(names.get(typeUrl) ?? [])];
      client.send(typeUrl, { responseNonce, resourceNames, ...(errorDetail && { errorDetail }) });
    }
    return received.length;
  };
  return {
    subscribe(short, resourceNames) {
      names.set(type(short), resourceNames);
      client.send(short, { resourceNames: [...resourceNames] });
    },
    accept: () => answer(),
    reject: () => void answer({ code: 3, message: 'no' }),
    stall: () => void (client.blocked = true),
    read: () => client.unblock(),
  };
}

function delta(relay: InMemoryRelay): Client {
  const client = relay.delta();
  const answer = (errorDetail?: { code: number; message: string }): number => {
    const received = client.received();
    for (const { typeUrl, nonce: responseNonce } of received)
      client.send(typeUrl, { responseNonce, ...(errorDetail && { errorDetail }) });
    return received.length;
  };
  return {
    subscribe: (short, names) => client.send(short, { resourceNamesSubscribe: [...names] }),
    accept: () => answer(),
    reject: () => void answer({ code: 3, message: 'no' }),
    stall: () => void (client.blocked = true),
    read: () => client.unblock(),
  };
}

for (const open of [sotw, delta]) {
  describe(`delays of updates (${open.name})`, () => {
    /** Two clients with clusters and their endpoints. */
    function settled() {
      const measured = new MeasuredRelay();
      const clients = [open(measured.relay), open(measured.relay)] as const;
      for (const client of clients) {
        client.subscribe('cds', []);
        client.subscribe('eds', ['a', 'b']);
      }
      measured.clusters({ a: '1', b: '1' });
      measured.endpoints('a', '1');
      measured.endpoints('b', '1');
      const accept = (): void => clients.forEach((client) => void client.accept());
      accept();
      return { measured, clients, accept };
    }

    it('what a changed cluster makes the relay send again has no age, whether after an hour or days', async () => {
      const { measured, accept } = settled();
      const [before = 0, sum] = await measured.propagation();
      const sentBefore = measured.sent('eds');
      for (const [index, pause] of [hour, day, 7 * day].entries()) {
        measured.after(pause);
        measured.clusters({ a: `${index + 2}`, b: '1' });
        accept();
        expect(measured.sent('eds') - sentBefore).to.equal((index + 1) * 2);
        expect(await measured.propagation()).to.deep.equal([before + (index + 1) * 2, sum]);
      }
      expect((await measured.acknowledged('eds'))[1]).to.equal(0);
    });

    it('each response has its own time: that of the stream that takes it, not of the last one', async () => {
      const { measured, clients } = settled();
      const [quick, slow] = clients;
      measured.after(day);
      const [before = 0, sum = 0] = await measured.propagation();
      slow.stall();
      measured.endpoints('a', '2'); // both take it
      measured.endpoints('a', '3'); // the slow one has not read the one before
      measured.after(5000);
      slow.read();
      expect(quick.accept()).to.equal(2);
      expect(await measured.propagation()).to.deep.equal([before + 4, sum + 5]);
    });

    it('a removal that waits for its turn has the time of its update', async () => {
      const { measured, clients } = settled();
      measured.after(day);
      const [before = 0, sum = 0] = await measured.propagation();
      for (const client of clients) client.stall();
      measured.endpoints('b', '2'); // fills the stream, so that the two changes of clusters are one response
      measured.clusters({ b: '1' });
      measured.endpoints('b', '3');
      measured.after(3000);
      for (const client of clients) client.read();
      expect(await measured.propagation()).to.deep.equal([before + 6, sum + 12]);
    });

    it('what a client gets because it subscribes is no update', async () => {
      const { measured, clients } = settled();
      measured.after(day);
      const before = await measured.propagation();
      clients[0].subscribe('eds', ['a', 'b', 'c']);
      open(measured.relay).subscribe('cds', []);
      expect(await measured.propagation()).to.deep.equal(before);
    });

    it('acknowledged: from the arrival to each ACK. A rejection is not counted', async () => {
      const { measured, clients, accept } = settled();
      const [before = 0, sum = 0] = await measured.acknowledged('cds');
      measured.after(3 * day);
      measured.clusters({ a: '2', b: '1' });
      measured.after(2000);
      accept();
      measured.after(day);
      accept();
      expect(await measured.acknowledged('cds')).to.deep.equal([before + 2, sum + 4]);
      measured.clusters({ a: 'bad', b: '1' });
      for (const client of clients) client.reject();
      expect(await measured.acknowledged('cds')).to.deep.equal([before + 2, sum + 4]);
    });
  });
}
