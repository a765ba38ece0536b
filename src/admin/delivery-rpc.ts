import { Code, ConnectError, type ServiceImpl } from '@connectrpc/connect';
import type { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import { type WaitRequest, WaitResponseSchema } from '../gen/distributary/admin/v1/delivery_pb.ts';
import { expectedText } from '../model/suggest.ts';
import type { Delivery, WaitQuery } from './delivery-ports.ts';
import { type Answer, optionalType, valueOf } from './rpc-parts.ts';

const longestWaitSeconds = 3600;

/** Wait and Tap. */
export function deliveryMethods(
  delivery: Delivery,
  answer: Answer,
): Pick<ServiceImpl<typeof AdminService>, 'wait' | 'tap'> {
  return {
    wait: (request, context) =>
      answer(WaitResponseSchema, context, async () =>
        valueOf(await delivery.wait(waitQuery(request), context.signal)),
      ),
    async *tap({ client, type }, { signal }) {
      const query = { client: client === '' ? undefined : client, type: optionalType(type) };
      yield* valueOf(delivery.tap(query, signal));
    },
  };
}

function waitQuery(request: WaitRequest): WaitQuery {
  const { type, name, names, revision, timeoutSeconds, allowStale, minClients = 1 } = request;
  if (!(timeoutSeconds >= 0 && timeoutSeconds <= longestWaitSeconds)) {
    const message = `timeout_seconds: ${expectedText(`0 to ${longestWaitSeconds}`, timeoutSeconds)}`;
    throw new ConnectError(message, Code.InvalidArgument);
  }
  return {
    type: optionalType(type),
    names: new Set(name === '' ? names : [name, ...names]),
    revision: revision === 0 ? undefined : revision,
    timeoutMs: timeoutSeconds * 1000,
    allowStale,
    minClients,
  };
}
