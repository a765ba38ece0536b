import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from './eventually.ts';
import { ResourceFiles } from './files.ts';
import { Reader } from './reading-fleet.ts';
import { RelayProcess } from './relay.ts';

export interface SlowClients {
  readonly streams: number;
  /** How many of them stop reading after the first state. */
  readonly stalled: number;
  /** Bytes of the whole state. */
  readonly size: number;
  readonly updates: number;
  /** Between two updates, in milliseconds. */
  readonly gap: number;
}

export interface SlowOutcome {
  /** Of the reading streams: updates that one of them missed for good (the last state). */
  readonly behind: number;
  /** From the writing of a file to a reading stream, over all: the 99th percentile in milliseconds. */
  readonly p99: number;
  /** Bytes that the relay grew by while updates flowed. */
  readonly growth: number;
  /** Responses that each stalled stream got after it read again, the last of which is the newest. */
  readonly afterwards: readonly (readonly string[])[];
  readonly newest: string;
}

const resources = 20;

/** Some clients stop reading while updates flow, and read again at the end. */
export async function runSlowClients(setting: SlowClients): Promise<SlowOutcome> {
  using files = new ResourceFiles();
  const write = (update: number): void => {
    const filler = 'x'.repeat(setting.size / resources);
    const names = Array.from({ length: resources }, (_, index) => `cluster-${index}`);
    files.write(
      'cds',
      new Map(names.map((name, index) => [name, index === 0 ? `${filler}${update}` : filler])),
    );
  };
  write(0);
  await using relay = await RelayProcess.startMeasurable({ upstreams: [files.upstream] });
  const fleet = Array.from(
    { length: setting.streams },
    (_, index) => new Reader(relay.xds, `client-${index}`, index < setting.stalled ? 65_535 : 1 << 20),
  );
  const slow = fleet.slice(0, setting.stalled);
  const quick = fleet.slice(setting.stalled);
  try {
    await eventually(() => {
      if (fleet.some(({ versions }) => versions.length === 0))
        throw new Error('not everybody has a first state');
    });
    for (const reader of slow) reader.stall();
    const before = (await relay.memory()).used;
    const delays: number[] = [];
    for (let update = 1; update <= setting.updates; update++) {
      const counts = quick.map(({ versions }) => versions.length);
      const at = performance.now();
      write(update);
      await sleep(setting.gap);
      for (const [index, reader] of quick.entries()) {
        const time = reader.times[counts[index] ?? 0];
        if (time !== undefined) delays.push(time - at);
      }
    }
    const newest = await eventually(() => {
      const last = new Set(quick.map(({ versions }) => versions.at(-1)));
      const [only] = last;
      if (last.size !== 1 || only === undefined) throw new Error('the readers are not at one version');
      return only;
    });
    const growth = (await relay.memory()).used - before;
    const seen = slow.map(({ versions }) => versions.length);
    for (const reader of slow) reader.read();
    await eventually(() => {
      if (slow.some(({ versions }) => versions.at(-1) !== newest))
        throw new Error('a stalled stream is behind');
    });
    return {
      behind: quick.filter(({ versions }) => versions.at(-1) !== newest).length,
      p99: delays.toSorted((a, b) => a - b)[Math.floor(delays.length * 0.99)] ?? Number.NaN,
      growth,
      afterwards: slow.map(({ versions }, index) => versions.slice(seen[index])),
      newest,
    };
  } finally {
    for (const reader of fleet) reader.close();
  }
}
