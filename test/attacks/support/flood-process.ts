/** A process of its own for whoever attacks: it takes its processor from nobody who measures. */
import { floods } from '../floods.ts';
import { Arena } from './attack.ts';
import type { FloodOrder } from './flooding.ts';

async function obey({ target, names }: FloodOrder): Promise<void> {
  await using arena = new Arena(target);
  let going = true;
  process.on('disconnect', () => {
    going = false;
    // What still waits for an answer is not waited for.
    setTimeout(() => process.exit(), 100).unref();
  });
  const chosen = floods.filter(({ name }) => names.includes(name));
  const running = chosen.map(({ run }) => run(arena, () => going));
  process.send?.('flooding');
  await Promise.all(running);
}

process.once('message', (order: FloodOrder) => {
  void obey(order).catch((error: unknown) => {
    console.error(error);
    process.exit(1);
  });
});
