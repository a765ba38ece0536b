import type { Clock, Timer } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { IpcRequest, IpcResponse } from './ipc-messages.ts';

export type IpcResult = Result<unknown, GrpcStatus>;

export interface IpcRpcOptions {
  readonly clock: Clock;
  /** Milliseconds that the other end may take. */
  readonly timeoutMs: number;
  send(message: IpcRequest | IpcResponse): void;
  /** What the other end asks. */
  answer(what: string, body: unknown): Promise<IpcResult>;
}

interface OpenCall {
  readonly timer: Timer;
  readonly resolve: (answered: IpcResult) => void;
}

const codes = new Set<number>(Object.values(Code));

/** Questions and answers between two processes, in both directions. */
export class IpcRpc {
  readonly #options: IpcRpcOptions;
  readonly #openCalls = new Map<number, OpenCall>();
  #lastId = 0;
  #closed = false;

  constructor(options: IpcRpcOptions) {
    this.#options = options;
  }

  /** Always resolves: UNAVAILABLE if the other end is gone, DEADLINE_EXCEEDED if it is silent. */
  call(what: string, body: unknown): Promise<IpcResult> {
    if (this.#closed) return Promise.resolve(processEnded);
    const { clock, timeoutMs } = this.#options;
    const id = ++this.#lastId;
    return new Promise((resolve) => {
      const timer = clock.after(timeoutMs, () => {
        this.#openCalls.delete(id);
        const message = `no answer to ${what} within ${timeoutMs} ms`;
        resolve(fail({ code: Code.DEADLINE_EXCEEDED, message }));
      });
      this.#openCalls.set(id, { timer, resolve });
      this.#options.send({ kind: 'ask', id, what, body });
    });
  }

  receive(message: IpcRequest | IpcResponse): void {
    if (message.kind === 'ask') {
      void this.#answer(message);
      return;
    }
    const open = this.#openCalls.get(message.id);
    if (open === undefined) return; // too late
    this.#openCalls.delete(message.id);
    open.timer.cancel();
    const { error } = message;
    open.resolve(error === undefined ? ok(message.body) : fail(statusOf(error)));
  }

  /** The other end is gone. */
  close(): void {
    this.#closed = true;
    for (const { timer, resolve } of this.#openCalls.values()) {
      timer.cancel();
      resolve(processEnded);
    }
    this.#openCalls.clear();
  }

  async #answer({ id, what, body }: IpcRequest): Promise<void> {
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

const processEnded: IpcResult = fail({ code: Code.UNAVAILABLE, message: 'the process has ended' });

function statusOf({ code, message }: { readonly code: number; readonly message: string }): GrpcStatus {
  return { code: isCode(code) ? code : Code.UNKNOWN, message };
}

const isCode = (code: number): code is Code => codes.has(code);
