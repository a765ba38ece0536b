import { setImmediate } from 'node:timers/promises';
import { type Client, status } from '@grpc/grpc-js';
import { expect } from 'chai';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { unary } from '../e2e/support/csds.ts';
import { manyResources, ResourceFiles } from '../e2e/support/files.ts';
import { RawConnection } from '../e2e/support/raw-http2.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { rawClient } from '../support/grpc-calls.ts';

const check = '/grpc.health.v1.Health/Check';
const empty = Buffer.alloc(0);
const emptyFrame = frameOf(empty);
const addresses = 25;
const callsOfEach = 100;
const rounds = 3;

describe('attacks from many addresses at once', function () {
  this.timeout(90_000);
  let files: ResourceFiles;
  let relay: RelayProcess;
  let prober: Client;
  const connections: RawConnection[] = [];

  before(async function () {
    // The whole of 127.0.0.0/8 is the loopback.
    if (process.platform !== 'linux') this.skip();
    files = new ResourceFiles();
    files.write('cds', manyResources(10));
    relay = await RelayProcess.start({ upstreams: [files.upstream] });
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
