/** A thread of its own for the control plane: it answers whatever the attack makes the relay ask. */
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { ModelPlane } from '../../e2e/support/model-plane.ts';
import { stampNow } from './bystander-messages.ts';

/** Name → content of clusters beside the one that changes. */
export interface PlaneData {
  readonly changing: string;
  readonly clusters: Readonly<Record<string, string>>;
}

/** Between two updates, in milliseconds. */
const gap = 50;

const { changing, clusters } = workerData as PlaneData;
const port = parentPort as MessagePort;
const plane = await ModelPlane.start();
const change = (): void => plane.set('cds', { ...clusters, [changing]: stampNow() });
change();
const timer = setInterval(change, gap);
port.on('message', () => {
  clearInterval(timer);
  void plane[Symbol.asyncDispose]().then(() => port.close());
});
port.postMessage(plane.address);
