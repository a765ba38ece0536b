/**
 * A gRPC client that finds its server by xDS (@grpc/grpc-js-xds): `node grpc-xds-client.ts xds:///NAME`, its bootstrap
 * in GRPC_XDS_BOOTSTRAP_CONFIG. For each line on stdin it calls once and prints what it got.
 */
import { createInterface } from 'node:readline';
import { Client, credentials } from '@grpc/grpc-js';
import { register } from '@grpc/grpc-js-xds';
import { WHO } from './grpc-xds.ts';

register();
const client = new Client(process.argv[2] ?? '', credentials.createInsecure());
const bytes = (value: Buffer) => value;

createInterface({ input: process.stdin })
  .on('line', () => {
    client.makeUnaryRequest(
      WHO,
      bytes,
      bytes,
      Buffer.alloc(0),
      { deadline: Date.now() + 5_000 },
      (error, answer) => {
        const line = error === null ? `answer ${answer?.toString() ?? ''}` : `error ${error.message}`;
        process.stdout.write(`${line}\n`);
      },
    );
  })
  .on('close', () => process.exit(0));
