/**
 * A grpc-js client that finds its servers by xDS (@grpc/grpc-js-xds), with its bootstrap in the file that
 * GRPC_XDS_BOOTSTRAP names. Each line on stdin, `ID TARGET SECONDS`, is a call with this deadline; on stdout follows
 * `ID answer NAME` or `ID error CODE MESSAGE`.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { Client, credentials } from '@grpc/grpc-js';
import { register } from '@grpc/grpc-js-xds';
import { z } from 'zod';
import { WHO } from './grpc-backend.ts';

const manifest = createRequire(import.meta.url).resolve('@grpc/grpc-js-xds/package.json');
const { version } = z.object({ version: z.string() }).parse(JSON.parse(readFileSync(manifest, 'utf8')));
process.stdout.write(`version ${version}\n`);

register();
const channels = new Map<string, Client>();
const bytes = (value: Buffer) => value;

function channel(target: string): Client {
  const found = channels.get(target) ?? new Client(target, credentials.createInsecure());
  channels.set(target, found);
  return found;
}

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const [id = '', target = '', seconds = ''] = line.split(' ');
    const deadline = Date.now() + Number(seconds) * 1000;
    channel(target).makeUnaryRequest(WHO, bytes, bytes, Buffer.alloc(0), { deadline }, (error, answer) => {
      const outcome =
        error === null
          ? `answer ${answer?.toString() ?? ''}`
          : `error ${error.code} ${error.details.replaceAll('\n', ' ')}`;
      process.stdout.write(`${id} ${outcome}\n`);
    });
  })
  .on('close', () => process.exit(0));
