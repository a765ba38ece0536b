import { randomInt } from 'node:crypto';

/** From 0 up to 1; unlike Math.random, nobody can foresee it from what came before. */
export const systemRandom = (): number => randomInt(2 ** 32) / 2 ** 32;

/** In random order (Fisher and Yates). `random`: 0 ≤ x < 1. */
export function shuffled<T>(items: Iterable<T>, random: () => number): T[] {
  const order = [...items];
  for (let next = 0; next < order.length - 1; next++) {
    const other = next + Math.floor(random() * (order.length - next));
    const [a, b] = [order[next], order[other]];
    if (a === undefined || b === undefined) continue;
    order[next] = b;
    order[other] = a;
  }
  return order;
}
