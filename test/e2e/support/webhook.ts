import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A webhook that answers as the case says, and keeps what it was told. */
export class Webhook implements Disposable {
  status = 200;
  /** It never answers. */
  isSilent = false;
  readonly told: string[] = [];
  readonly headers: IncomingHttpHeaders[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    server.on('request', (request, response) => {
      let body = '';
      request.on('data', (part: Buffer) => {
        body += part.toString();
      });
      request.on('end', () => {
        this.told.push(body);
        this.headers.push(request.headers);
        if (!this.isSilent) response.writeHead(this.status).end();
      });
    });
  }

  static async start(): Promise<Webhook> {
    const server = createServer();
    const created = new Webhook(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return created;
  }

  get url(): string {
    const { port } = this.#server.address() as AddressInfo;
    return `http://127.0.0.1:${port}/check`;
  }

  [Symbol.dispose](): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
