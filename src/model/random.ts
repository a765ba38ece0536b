import { randomInt } from 'node:crypto';

/** From 0 up to 1; unlike Math.random, nobody can foresee it from what came before. */
export const systemRandom = (): number => randomInt(2 ** 32) / 2 ** 32;
