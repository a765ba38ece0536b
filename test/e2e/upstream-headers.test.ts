import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { ControlPlane } from '../upstream/ads/control-plane.ts';
import { eventually } from './support/eventually.ts';
import { temporaryDirectory } from './support/paths.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const cds = typeOf('cds');
const secret = 's3cret-of-the-first-day';
const next = 's3cret-of-the-next-day';

describe('headers of streams to a control plane', () => {
  let stack: AsyncDisposableStack;
  let plane: ControlPlane;
  let tokenFile: string;
  let relay: RelayProcess;
  const write = (content: string): void => {
    writeFileSync(`${tokenFile}.new`, content);
    renameSync(`${tokenFile}.new`, tokenFile);
  };

  beforeEach(async () => {
    stack = new AsyncDisposableStack();
    plane = await new ControlPlane().listen();
    stack.defer(() => plane.kill());
    plane.answer = (stream, request) => {
      if (request.responseNonce === '') stream.send(cds, '1', 'shop:1@1');
    };
    tokenFile = join(stack.use(temporaryDirectory()).path, 'token');
    write(`${secret}\n`);
    relay = stack.use(
      await RelayProcess.start({
        drain_timeout: '100ms',
        upstreams: [
          upstream(`127.0.0.1:${plane.port}`, 'DELTA', {
            headers: { 'X-Fleet': 'blue', 'x-key': 'hush' },
            token_file: tokenFile,
            backoff: { initial: '100ms', max: '200ms' },
          }),
        ],
      }),
    );
    const client = stack.use(new XdsClient(relay.xds, 'delta'));
    client.subscribe('cds');
    await client.gets('cds');
  });
  afterEach(() => stack.disposeAsync());

  const sent = (header: string): readonly string[] =>
    plane.streams.map(({ metadata }) => String(metadata.get(header)[0] ?? ''));

  it('the configured ones and the token are sent; a changed token is used by the next stream', async () => {
    expect(sent('x-fleet')).to.deep.equal(['blue']);
    expect(sent('authorization')).to.deep.equal([`Bearer ${secret}`]);
    write(next);
    plane.openStreams[0]?.end();
    await eventually(() =>
      expect(sent('authorization')).to.deep.equal([`Bearer ${secret}`, `Bearer ${next}`]),
    );
  });

  it('without a token no stream is opened, and /ready says why; with the next token it works again', async () => {
    write('two tokens');
    plane.openStreams[0]?.end();
    await eventually(async () =>
      expect((await relay.get('/ready')).body).to.include(
        'has more than one token: it must have exactly one',
      ),
    );
    expect(sent('authorization')).to.have.length(1);
    write(next);
    await eventually(() => expect(sent('authorization').at(-1)).to.equal(`Bearer ${next}`));
    expect(relay.output).to.not.include('two tokens');
  });

  it('neither is in the log, on /ready, in the metrics or in /config_dump', async () => {
    const dump = (await relay.get('/config_dump')).body;
    expect(dump).to.include(tokenFile).and.to.include('[redacted]');
    const all = [dump, relay.output, (await relay.get('/ready')).body, (await relay.get('/metrics')).body];
    for (const text of all) expect(text).to.not.include(secret).and.to.not.include('hush');
  });
});
