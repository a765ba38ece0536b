import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { typeUrl } from '../model/brand.ts';
import type { Log } from '../observe/log.ts';
import type { SavedRollout } from '../rollout/rollout-options.ts';
import { errorCode, explainError } from '../wire/node-error.ts';

const content = z.object({
  freezes: z.array(
    z.object({
      type: z.string().optional(),
      upstream: z.string().optional(),
      reason: z.string(),
      since: z.number(),
    }),
  ),
  canaries: z.array(z.tuple([z.string(), z.string()])),
});

const nothing: SavedRollout = { freezes: [], canaries: new Map() };

/** What is frozen and who is a canary, beside the persisted cache: a restart must not open what an operator closed. */
export class RolloutFile {
  readonly #path: string;
  readonly #log: Log;

  constructor(directory: string, log: Log) {
    this.#path = join(directory, 'rollout.json');
    this.#log = log;
  }

  load(): SavedRollout {
    try {
      const { freezes, canaries } = content.parse(JSON.parse(readFileSync(this.#path, 'utf8')));
      return {
        freezes: freezes.map(({ type, upstream, reason, since }) => ({
          type: type === undefined ? undefined : typeUrl(type),
          upstream,
          reason,
          since,
        })),
        canaries: new Map(canaries),
      };
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return nothing;
      const reason = error instanceof z.ZodError ? z.prettifyError(error) : explainError(error);
      this.#log.error('what was frozen is not known: the file cannot be read', { file: this.#path, reason });
      return nothing;
    }
  }

  /** Another file takes its place, so that a crash leaves the one or the other. */
  save({ freezes, canaries }: SavedRollout): void {
    try {
      writeFileSync(`${this.#path}.new`, JSON.stringify({ freezes, canaries: [...canaries] }), {
        mode: 0o600,
      });
      renameSync(`${this.#path}.new`, this.#path);
    } catch (error) {
      this.#log.error('what is frozen is not kept over a restart: the file cannot be written', {
        file: this.#path,
        reason: explainError(error),
      });
    }
  }
}
