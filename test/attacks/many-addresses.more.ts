import { once } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { type Client, status } from '@grpc/grpc-js';
import { expect } from 'chai';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { unary } from '../e2e/support/csds.ts';
import { manyResources, ResourceFiles } from '../e2e/support/files.ts';
import { field, many } from '../e2e/support/large-messages.ts';
import { RawConnection } from '../e2e/support/raw-http2.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { slower } from '../support/cpu.ts';
import { rawClient } from '../support/grpc-calls.ts';
import { type } from '../support/in-memory-relay.ts';

const check = '/grpc.health.v1.Health/Check';
const empty = Buffer.alloc(0);
const emptyFrame = frameOf(empty);
const addresses = 25;
const callsOfEach = 100;
const rounds = 3;
const attackersAtOnce = 15;
/** As many as limits.max_subscriptions_per_stream allows. */
const namesOfEach = 10_000;
/** CPU of the loop without a turn, in milliseconds. One such request takes 60 in one step, and 30 of them took 3,800 at once. */
const most = 500;

describe('attacks from many addresses at once', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;
  let prober: Client;
  const connections: RawConnection[] = [];

  before(async function () {
    // The whole of 127.0.0.0/8 is the loopback.
    if (process.platform !== 'linux') this.skip();
    files = new ResourceFiles();
    files.write('eds', manyResources(10));
    relay = await RelayProcess.startProbed({ upstreams: [files.upstream] });
    prober = rawClient(relay.xds);
    await unary(prober, check, empty);
  });

  afterEach(async () => {
    const ended = connections.splice(0).map((connection) => {
      connection[Symbol.dispose]();
      return connection.ended;
    });
    await Promise.all(ended);
  });

  after(async () => {
    prober?.close();
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  async function connect(count: number): Promise<readonly RawConnection[]> {
    const opened = Array.from(
      { length: count },
      (_, index) => new RawConnection(relay.xds, undefined, `127.0.1.${index + 1}`),
    );
    connections.push(...opened);
    return Promise.all(opened.map((connection) => connection.ready()));
  }

  /** How a Check of another address ends. */
  const probe = (): Promise<number> =>
    unary(prober, check, empty).then(
      () => status.OK,
      (error: { code: number }) => error.code,
    );

  it('large requests whose last bytes arrive at the same moment hold up nobody for long', async () => {
    const attackers = await connect(attackersAtOnce);
    const calls = attackers.map((attacker, index) => {
      const { stream } = attacker.call(`/${ADS_SERVICE}/DeltaAggregatedResources`);
      const names = many(namesOfEach, (at) => field(3, `a${index}-${at}-`.padEnd(30, 'x')));
      const request = frameOf(
        Buffer.concat([field(1, field(1, `node${index}`)), field(2, type('eds')), names]),
      );
      stream.write(request.subarray(0, -1));
      return { stream, last: request.subarray(-1), answered: once(stream, 'data') };
    });
    for (const { session } of attackers) await new Promise((resolve) => session.ping(resolve));
    await relay.blocked();
    for (const { stream, last } of calls) stream.write(last);
    await Promise.all(calls.map(({ answered }) => answered));
    const { cpu } = await relay.blocked();
    if (process.env['FIGURES'] === '1') process.stdout.write(`${cpu.toFixed()} ms\n`);
    expect(cpu / slower()).to.be.below(most);
  });

  for (const [how, body, isWhole] of [
    ['whole', emptyFrame, true],
    ['half', emptyFrame.subarray(0, 2), false],
  ] as const) {
    it(`Health/Check is answered while others send so many that it is full: ${how}`, async () => {
      const attackers = await connect(addresses);
      const codes: number[] = [];
      for (let round = 0; round < rounds; round++) {
        const calls = attackers.flatMap((attacker) =>
          Array.from({ length: callsOfEach }, () => attacker.call(check)),
        );
        for (const { stream } of calls) {
          if (isWhole) stream.end(body);
          else stream.write(body);
        }
        // They are sent in the next turn, and this within it.
        await setImmediate();
        codes.push(await probe(), await probe());
        for (const { stream } of calls) stream.close();
        await Promise.all(calls.map(({ ends }) => ends));
      }
      expect(codes).to.deep.equal(codes.map(() => status.OK));
    });
  }
});
