/** A thread of its own for the well-behaved client and the probe: the attack keeps the main thread's loop busy. */
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import type { BystanderCommand, BystanderData, BystanderReport } from './bystander-messages.ts';
import { HealthProbe } from './health-probe.ts';
import { WellBehavedClient } from './well-behaved-client.ts';

const data = workerData as BystanderData;
const port = parentPort as MessagePort;
const client = new WellBehavedClient(data);
const probe = new HealthProbe(data.target);

async function report(): Promise<BystanderReport> {
  const failure = await client.getsSomething().then(
    () => undefined,
    (error: Error) => error.message,
  );
  return { health: await probe.report(), updates: client.report(), failure };
}

async function obey(command: BystanderCommand): Promise<void> {
  if (command === 'begin') {
    await client.getsSomething();
    client.begin();
    probe.begin();
    port.postMessage('begun');
  } else if (command === 'report') {
    port.postMessage(await report());
  } else {
    probe.stop();
    await client.stop();
    port.close();
  }
}

port.on('message', (command: BystanderCommand) => {
  void obey(command).catch((error: unknown) => port.postMessage(String(error)));
});
