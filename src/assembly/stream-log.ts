import type { LoggedStream, Refused } from '../downstream/services.ts';
import type { TypeUrl } from '../model/brand.ts';
import { keptError } from '../model/error-text.ts';
import { shorten } from '../model/text.ts';
import { typeInfo } from '../model/types.ts';
import { longestText } from '../observe/format.ts';
import type { Fields, Log } from '../observe/log.ts';
import type { LogLevels } from '../observe/log-levels.ts';

/** What streams do, at the level debug. A line is made only if it is written. */
export class StreamLog {
  readonly #log: Log;
  readonly #levels: LogLevels;

  constructor(log: Log, levels: LogLevels) {
    this.#log = log;
    this.#levels = levels;
  }

  /** Its node is not known yet. */
  opened(stream: LoggedStream): void {
    const { protocol, service } = stream.route;
    if (this.#isWritten(stream))
      this.#log.debug('a stream opens', { ...fieldsOf(stream), protocol, service });
  }

  /** It has changed what it subscribes to. */
  subscribed(stream: LoggedStream, type: TypeUrl): void {
    if (!this.#isWritten(stream)) return;
    const short = shorten(typeInfo(type).short, longestText);
    this.#log.debug('a client subscribes', { ...fieldsOf(stream), type: short });
  }

  refused(reason: string, refused: Refused): void {
    if (!this.#isWritten(refused.stream)) return;
    const { code, message = '' } = refused.status ?? {};
    const said = keptError(message);
    this.#log.debug('a stream is refused', { ...whoIs(refused), reason, code, error: said });
  }

  ended(stream: LoggedStream): void {
    if (this.#isWritten(stream)) this.#log.debug('a stream ends', fieldsOf(stream));
  }

  #isWritten(stream: LoggedStream | undefined): boolean {
    return this.#levels.enables('debug', stream?.client?.nodeId);
  }
}

/** The fields of a line about somebody who was refused. */
export function whoIs(refused: Refused | undefined): Fields {
  if (refused?.stream !== undefined) return fieldsOf(refused.stream);
  return refused === undefined ? {} : { peer: refused.peer.address };
}

function fieldsOf({ id, transport, client }: LoggedStream): Fields {
  const { address } = transport.peer;
  return client === undefined
    ? { stream: id, peer: address }
    : { stream: id, peer: address, node: shorten(client.nodeId, longestText) };
}
