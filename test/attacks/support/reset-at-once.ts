import { block, ErrorCode, type Fields, Flag, headers, reset } from './frames.ts';

const target: Fields = [
  [':scheme', 'http'],
  [':path', '/x'],
];

function request(method: string, more: Fields = []): Buffer {
  const path = method === 'CONNECT' ? [] : target;
  return block([[':method', method], ...path, [':authority', 'relay.test'], ...more]);
}

const requests: readonly (readonly [string, Buffer])[] = [
  ['GET', request('GET')],
  ['HEAD', request('HEAD')],
  ['POST', request('POST')],
  ['CONNECT', request('CONNECT')],
  ['a body that is too large', request('POST', [['content-length', '1000000000']])],
  ['expect: 100-continue', request('POST', [['expect', '100-continue']])],
  ['another expect', request('POST', [['expect', 'the unexpected']])],
];

const codes = Object.values(ErrorCode);
/** The one stream that is not reset. */
export const lastStream = 4 * codes.length + 1;

/** By what is asked: streams that are reset as soon as they are open, with every code, and `lastStream`. */
export const resetsAtOnce: readonly (readonly [string, Buffer])[] = requests.map(([what, fields]) => {
  const whole = Flag.END_HEADERS | Flag.END_STREAM;
  const streams = codes.flatMap((code, at) => [
    headers(4 * at + 1, fields, whole),
    reset(4 * at + 1, code),
    headers(4 * at + 3, fields),
    reset(4 * at + 3, code),
  ]);
  return [what, Buffer.concat([...streams, headers(lastStream, request('GET'), whole)])];
});
