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

function tapMessage({
  at = systemClock.now(),
  type,
  names = [],
  removed = [],
  ...rest
}: Tapped): Plain<TapMessage> {
  const short = type === undefined ? '' : typeInfo(type).short;
  const lists = { names: [...names], removed: [...removed] };
  return { ...EMPTY, ...rest, ...lists, at: new Date(at).toISOString(), type: short };
}
