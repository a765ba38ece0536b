import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import { fail, type Result } from '../model/result.ts';
import type { AuxiliaryCall } from './auxiliary-calls.ts';
import { Deframer } from './grpc-frames.ts';
import { closeSoon, refusalOf, refuse } from './grpc-requests.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import { statusTrailers } from './grpc-status-headers.ts';

/** From the message of a unary call to the frame of its answer. It costs less than to have the call wait. */
export type AnswerAtOnce = (request: Buffer) => Result<Buffer, GrpcStatus>;

const protobuf = /^application\/grpc(?:\+proto)?(?:;|$)/i;
const responseHeaders: readonly string[] = [':status', '200', 'content-type', 'application/grpc'];
const respondOptions = { waitForTrailers: true, sendDate: false } as const;
const done: GrpcStatus = { code: Code.OK, message: '' };
const missing: GrpcStatus = {
  code: Code.UNIMPLEMENTED,
  message: 'a unary call takes one message: none came',
};
const another: GrpcStatus = {
  code: Code.UNIMPLEMENTED,
  message: 'a unary call takes one message: another one came',
};

/** Protobuf that is not compressed, as every gRPC client sends it that was not told otherwise. */
export function isPlainGrpc(headers: IncomingHttpHeaders): boolean {
  const encoding = headers['grpc-encoding'] ?? 'identity';
  const type = headers['content-type'] ?? '';
  return encoding === 'identity' && protobuf.test(type) && refusalOf(headers) === undefined;
}

/** Answers when the request has arrived whole, and does not ask whether it is its peer's turn. */
export function answerAtOnce(
  stream: ServerHttp2Stream,
  call: AuxiliaryCall,
  maxRequestBytes: number,
  answer: AnswerAtOnce,
): void {
  const { account } = call.peer;
  let outcome: Result<Buffer, GrpcStatus> | undefined;
  const sink = {
    message: (bytes: Buffer): void => {
      outcome = outcome === undefined ? answer(bytes) : fail(another);
    },
  };
  const options = { maxBytes: maxRequestBytes, limitName: 'a fixed limit', encoding: undefined };
  const deframer = new Deframer(sink, options);
  call.onClose(() => deframer.stop());
  const finish = (result: Result<Buffer, GrpcStatus>): void => {
    deframer.stop();
    if (call.ended || stream.destroyed || stream.closed || stream.headersSent) return;
    if (result.ok) respond(stream, result.value);
    else refuse(stream, result.error);
  };
  stream.on('data', (chunk: Buffer) =>
    account.work(() => {
      const fault = deframer.push(chunk);
      if (fault !== undefined) finish(fail(fault));
    }),
  );
  stream.on('end', () =>
    account.work(() => {
      const fault = deframer.end();
      finish(fault === undefined ? (outcome ?? fail(missing)) : fail(fault));
    }),
  );
}

function respond(stream: ServerHttp2Stream, frame: Buffer): void {
  stream.respond(responseHeaders, respondOptions);
  stream.once('wantTrailers', () => {
    stream.sendTrailers(statusTrailers(done));
    closeSoon(stream);
  });
  stream.end(frame);
}
