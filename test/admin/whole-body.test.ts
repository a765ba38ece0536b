import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { wholeBody } from '../../src/admin/admin-server.ts';

describe('the body of a request to the admin listener', () => {
  let server: Server;
  let url = '';

  before(async () => {
    const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
      const body = await wholeBody(request, 10);
      response.end(body?.ok === true ? Buffer.from(body.value) : body?.error);
    };
    server = createServer((request, response) => void answer(request, response));
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    const address: AddressInfo | string | null = server.address();
    url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  });

  after(() => {
    server.closeAllConnections();
    server.close();
  });

  const answerTo = async (body: string): Promise<string> =>
    (await fetch(url, { method: 'POST', body })).text();

  it('has as many bytes as are accepted, and none', async () => {
    expect(await answerTo('0123456789')).to.equal('0123456789');
    expect(await answerTo('')).to.equal('');
  });

  it('is refused with one more', async () => {
    expect(await answerTo('0123456789a')).to.equal('the request is larger than 10 bytes');
  });
});
