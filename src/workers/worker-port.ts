import { createServer, type ListenOptions, type Server } from 'node:net';
import { fail, ok, type Result } from '../model/result.ts';
import { formatHostPort } from '../wire/address.ts';
import { errorCode, explainError } from '../wire/node-error.ts';

/** Where a listener of the workers listens, now and later. */
interface WorkerPort {
  readonly port: number;
  /** Each worker listens by itself (SO_REUSEPORT); else all of them through the primary. */
  readonly shared: boolean;
}

/** Undefined: a Unix socket, or no listener. */
export interface WorkerPorts {
  readonly xds: WorkerPort | undefined;
  readonly rest: WorkerPort | undefined;
}

/**
 * The port of the workers. One that somebody listens on is refused here: the kernel would let workers listen beside another
 * program of this user that shares its port, too, and give each of them a part of the clients. `reserved` keeps out other
 * relays with workers, also while no worker listens.
 */
export async function reservePort(
  { host, port: wanted }: { readonly host: string; readonly port: number },
  reserved: AsyncDisposableStack,
): Promise<Result<WorkerPort>> {
  const address = formatHostPort(host, wanted);
  const inVain = (error: Error) => fail(`cannot listen on ${address}: ${explainError(error)}`);
  // A port that the system chooses is nobody else's.
  if (process.platform === 'linux' && wanted !== 0) {
    // An abstract socket is known in the network namespace, as ports are, and gone with the process.
    const lock = await listening({ path: `\0distributary ${address}` });
    if (lock.ok) reserved.use(lock.value);
    else if (errorCode(lock.error) === 'EADDRINUSE') return inVain(lock.error);
  }
  const alone = await listening({ host, port: wanted });
  if (!alone.ok) return inVain(alone.error);
  const bound = alone.value.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : wanted;
  await alone.value[Symbol.asyncDispose]();
  const among = await listening({ host, port, reusePort: true });
  if (among.ok) await among.value[Symbol.asyncDispose]();
  return ok({ port, shared: among.ok });
}

/** Nobody is served: who connects is sent away. */
function listening(options: ListenOptions): Promise<Result<Server, Error>> {
  const server = createServer((socket) => socket.destroy());
  return new Promise((resolve) => {
    server.on('error', (error) => resolve(fail(error))); // later: a connection is not accepted
    server.listen(options, () => resolve(ok(server)));
  });
}
