import type { Plain } from '../admin/plain.ts';
import { optionalType, type Request } from '../admin/requests.ts';
import type { TapFilter, Tapped } from '../downstream/taps.ts';
import type { TapMessage } from '../gen/distributary/admin/v1/delivery_pb.ts';
import { systemClock } from '../model/clock.ts';
import { Pace } from '../model/time-slices.ts';
import { typeInfo } from '../model/types.ts';
import type { Relay } from '../relay.ts';
import { rpcError } from '../wire/connect.ts';
import { Code } from '../wire/grpc-status.ts';
import { noSuchClient } from './clients-view.ts';

/** Each costs something for every message. */
const maxTaps = 16;

/** The messages of the streams that end in this process, as they pass. */
export function tapMessages(
  relay: Relay,
  { client, type }: Request<'tap'>,
  signal: AbortSignal,
): AsyncIterable<Plain<TapMessage>> {
  if (client !== '' && relay.server.stream(client) === undefined) noSuchClient(client);
  if (relay.taps.size >= maxTaps) {
    const message = `${maxTaps} taps are open, the maximum: end one of them`;
    throw rpcError({ code: Code.RESOURCE_EXHAUSTED, message });
  }
  const filter = { client: client === '' ? undefined : client, type: optionalType(type) };
  return messages(relay, filter, signal);
}

/** In slices: who reads along must not hold up updates. */
async function* messages(
  relay: Relay,
  filter: TapFilter,
  signal: AbortSignal,
): AsyncIterable<Plain<TapMessage>> {
  const tap = relay.taps.open(filter);
  const close = (): void => tap.close();
  signal.addEventListener('abort', close);
  try {
    const pace = new Pace(systemClock);
    for (let batch = await tap.next(); batch !== undefined && !signal.aborted; batch = await tap.next()) {
      for (const message of batch) {
        await pace.yieldIfDue();
        yield tapMessage(message);
      }
    }
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
}

const EMPTY: Plain<TapMessage> = {
  at: '',
  event: '',
  client: '',
  node: '',
  type: '',
  kind: '',
  version: '',
  nonce: '',
  resources: 0,
  names: [],
  removed: [],
  bytes: 0,
  error: '',
  errorCode: 0,
  lost: 0,
};

function tapMessage(message: Tapped): Plain<TapMessage> {
  if (message.event === 'LOST') {
    return { ...EMPTY, event: 'LOST', at: new Date().toISOString(), lost: message.count };
  }
  const { event, client, node } = message;
  const common = { ...EMPTY, at: new Date(message.at).toISOString(), event, client, node };
  switch (event) {
    case 'SENT': {
      const { names, removed, ...content } = message.content;
      const type = typeInfo(message.type).short;
      return { ...common, ...content, type, names: [...names], removed: [...removed] };
    }
    case 'HEARD': {
      const { kind, version, nonce, names, named, bytes, error } = message;
      const heard = { ...common, type: typeInfo(message.type).short, kind, version, nonce, bytes };
      const rejection = error === undefined ? {} : { error: error.message, errorCode: error.code };
      return { ...heard, resources: named, names: [...names], ...rejection };
    }
    case 'ENDED':
      return common;
    default:
      return event satisfies never;
  }
}
