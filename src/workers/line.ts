import type { Clock, Timer } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { Code, type GrpcStatus } from '../wire/status.ts';
import type { Answer, Ask } from './messages.ts';

export type Answered = Result<unknown, GrpcStatus>;

export interface LineOptions {
  readonly clock: Clock;
  /** Milliseconds that the other end may take. */
  readonly patience: number;
  send(message: Ask | Answer): void;
  /** What the other end asks. */
  answer(what: string, body: unknown): Promise<Answered>;
}

interface Open {
  readonly timer: Timer;
  readonly resolve: (answered: Answered) => void;
}

const codes = new Set<number>(Object.values(Code));

/** Questions and answers between two processes, in both directions. */
export class Line {
  readonly #options: LineOptions;
  readonly #open = new Map<number, Open>();
  #lastId = 0;
  #closed = false;

  constructor(options: LineOptions) {
    this.#options = options;
  }

  /** Always resolves: UNAVAILABLE if the other end is gone, DEADLINE_EXCEEDED if it is silent. */
  ask(what: string, body: unknown): Promise<Answered> {
    if (this.#closed) return Promise.resolve(gone);
    const { clock, patience } = this.#options;
    const id = ++this.#lastId;
    return new Promise((resolve) => {
      const timer = clock.after(patience, () => {
        this.#open.delete(id);
        const message = `no answer to ${what} within ${patience} ms`;
        resolve(fail({ code: Code.DEADLINE_EXCEEDED, message }));
      });
      this.#open.set(id, { timer, resolve });
      this.#options.send({ kind: 'ask', id, what, body });
    });
  }

  receive(message: Ask | Answer): void {
    if (message.kind === 'ask') {
      void this.#answer(message);
      return;
    }
    const open = this.#open.get(message.id);
    if (open === undefined) return; // too late
    this.#open.delete(message.id);
    open.timer.cancel();
    const { error } = message;
    open.resolve(error === undefined ? ok(message.body) : fail(statusOf(error)));
  }

  /** The other end is gone. */
  close(): void {
    this.#closed = true;
    for (const { timer, resolve } of this.#open.values()) {
      timer.cancel();
      resolve(gone);
    }
    this.#open.clear();
  }

  async #answer({ id, what, body }: Ask): Promise<void> {
    const answered = await this.#options.answer(what, body).catch((error: unknown) => {
      return fail({ code: Code.INTERNAL, message: String(error) });
    });
    if (this.#closed) return;
    this.#options.send({
      kind: 'answer',
      id,
      ...(answered.ok ? { body: answered.value } : { error: answered.error, body: undefined }),
    });
  }
}

const gone: Answered = fail({ code: Code.UNAVAILABLE, message: 'the process has ended' });

function statusOf({ code, message }: { readonly code: number; readonly message: string }): GrpcStatus {
  return { code: isCode(code) ? code : Code.UNKNOWN, message };
}

const isCode = (code: number): code is Code => codes.has(code);
