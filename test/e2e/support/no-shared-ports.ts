/** With --import: as on a system where no two sockets may listen on one port (SO_REUSEPORT). */
import { type ListenOptions, Server } from 'node:net';

const listen = Reflect.get(Server.prototype, 'listen');
Server.prototype.listen = function (this: Server, ...args: unknown[]): Server {
  const [options] = args as readonly (ListenOptions | undefined)[];
  if (options?.reusePort !== true) return Reflect.apply(listen, this, args) as Server;
  const error = Object.assign(new Error('listen ENOTSUP'), { code: 'ENOTSUP' });
  process.nextTick(() => this.emit('error', error));
  return this;
};
