import type { IncomingMessage } from 'node:http';
import { fail, ok, type Result } from '../model/result.ts';
import { BodyPieces, tooSmallMessage } from '../wire/body-pieces.ts';

/** The body of a request: Connect would keep a buffer for each piece in which it comes. Undefined: its client has gone. */
export function wholeBody(
  request: IncomingMessage,
  mostBytes: number,
): Promise<Result<Uint8Array> | undefined> {
  const body = new BodyPieces();
  return new Promise((resolve) => {
    const refuse = (message: string): void => {
      request.off('data', take).resume();
      body.drop();
      resolve(fail(message));
    };
    const take = (piece: Buffer): void => {
      if (body.bytes + piece.length > mostBytes) {
        refuse(`the request is larger than ${mostBytes} bytes`);
        return;
      }
      body.add(piece, mostBytes);
      if (body.areTooSmall) refuse(`the request is refused: ${tooSmallMessage}`);
    };
    request.on('data', take);
    request.once('end', () => resolve(ok(body.take())));
    request.once('close', () => resolve(undefined));
  });
}
