import { eventually } from './eventually.ts';
import { ModelPlane } from './model-plane.ts';
import { Reader } from './reading-fleet.ts';
import { RelayProcess, upstream } from './relay.ts';

export interface SlowClients {
  readonly streams: number;
  /** How many of them stop reading after the first state. */
  readonly stalled: number;
  /** Bytes of the whole state. */
  readonly size: number;
  readonly updates: number;
}

export interface SlowOutcome {
  /** Updates that a reading stream did not get, over all of these. */
  readonly missed: number;
  /** Bytes that the relay grew by while updates flowed. */
  readonly growth: number;
  /** Versions that each stalled stream got after it read again. */
  readonly afterwards: readonly (readonly string[])[];
  /** The last version. */
  readonly newest: string;
}

const resources = 20;
/** Of a client that stops reading: so much is on its way at most. */
const smallWindow = 65_535;

/** Some clients stop reading while updates flow, each as soon as all others have the one before, and read again at the end. */
export async function runSlowClients(setting: SlowClients): Promise<SlowOutcome> {
  await using plane = await ModelPlane.start();
  const filler = 'x'.repeat(setting.size / resources);
  const state = new Map(Array.from({ length: resources }, (_, index) => [`cluster-${index}`, filler]));
  plane.set('cds', state);
  await using relay = await RelayProcess.startMeasurable({
    upstreams: [upstream(plane.address, 'SOTW')],
    limits: { stalled_timeout: '1h' }, // they do not read for as long as the updates take
  });
  const fleet = Array.from(
    { length: setting.streams },
    (_, index) => new Reader(relay.xds, `client-${index}`, index < setting.stalled ? smallWindow : 1 << 20),
  );
  const slow = fleet.slice(0, setting.stalled);
  const quick = fleet.slice(setting.stalled);
  try {
    await eventually(() => {
      if (fleet.some(({ versions }) => versions.length === 0)) throw new Error('somebody has no first state');
    });
    for (const reader of slow) reader.stall();
    const before = (await relay.memory()).used;
    let newest = '';
    for (let update = 1; update <= setting.updates; update++) {
      newest = String(update + 1);
      plane.set('cds', new Map([...state, ['cluster-0', `${filler}${update}`]]));
      await eventually(() => {
        if (quick.some(({ versions }) => versions.at(-1) !== newest))
          throw new Error('a reading stream is behind');
      });
    }
    const growth = (await relay.memory()).used - before;
    const seen = slow.map(({ versions }) => versions.length);
    for (const reader of slow) reader.read();
    await eventually(() => {
      if (slow.some(({ versions }) => versions.at(-1) !== newest))
        throw new Error('a stalled stream is behind');
    });
    const got = quick.reduce((sum, { versions }) => sum + new Set(versions).size - 1, 0);
    return {
      missed: quick.length * setting.updates - got,
      growth,
      afterwards: slow.map(({ versions }, index) => versions.slice(seen[index])),
      newest,
    };
  } finally {
    for (const reader of fleet) reader.close();
  }
}
