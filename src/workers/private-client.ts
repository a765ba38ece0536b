import { get, type IncomingMessage } from 'node:http';
import { json } from 'node:stream/consumers';
import { Code as ConnectCode, ConnectError, type Transport } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { fail, ok, type Result } from '../model/result.ts';
import { Code, codeOf, type GrpcStatus } from '../wire/grpc-status.ts';
import { errorCode } from '../wire/node-error.ts';

/** To a private listener. Each call has its own connection, because a connection that is used again could just end. */
const connection = (socketPath: string) => ({ socketPath, agent: false });

/** For Connect's clients. `timeoutMs`: of each call. */
export function privateTransport(socketPath: string, timeoutMs: number): Transport {
  return createConnectTransport({
    baseUrl: 'http://localhost',
    httpVersion: '1.1',
    acceptCompression: [],
    defaultTimeoutMs: timeoutMs,
    nodeOptions: connection(socketPath),
  });
}

/** One of the listener's pages, as JSON. */
export async function getJson(socketPath: string, path: string, timeoutMs: number): Promise<unknown> {
  const signal = AbortSignal.timeout(timeoutMs);
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    get({ ...connection(socketPath), path, signal }, resolve).on('error', reject);
  });
  return json(response);
}

/**
 * The answer of another process as a value. UNAVAILABLE: the process is gone; DEADLINE_EXCEEDED: it is silent; else as
 * it was refused.
 */
export async function attempt<T>(call: Promise<T>): Promise<Result<T, GrpcStatus>> {
  try {
    return ok(await call);
  } catch (error) {
    return fail(statusOf(error));
  }
}

const processEnded: GrpcStatus = { code: Code.UNAVAILABLE, message: 'the process has ended' };
const noAnswer: GrpcStatus = { code: Code.DEADLINE_EXCEEDED, message: 'no answer in time' };

function statusOf(reason: unknown): GrpcStatus {
  const { code, rawMessage: message, cause } = ConnectError.from(reason, ConnectCode.Internal);
  // Nothing but the deadline cancels a call.
  if (code === ConnectCode.Canceled || code === ConnectCode.DeadlineExceeded) return noAnswer;
  // Aborted: the connection has ended before the answer.
  if (code === ConnectCode.Aborted || errorCode(cause) !== undefined) return processEnded;
  return { code: codeOf(code), message };
}
