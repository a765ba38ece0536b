import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { ConnectError } from '@connectrpc/connect';
import { Client, type ClientDuplexStream, credentials } from '@grpc/grpc-js';
import { parseConfig } from '../config/load.ts';
import { problemLine } from '../config/source.ts';
import { Distributary } from '../distributary.ts';
import {
  type DeltaDiscoveryRequest,
  DeltaDiscoveryRequestSchema,
  type DeltaDiscoveryResponse,
  DeltaDiscoveryResponseSchema,
} from '../gen/envoy/service/discovery/v3/discovery_pb.ts';
import { typeUrl } from '../model/brand.ts';
import { fail, type Result } from '../model/result.ts';
import { printable } from '../model/text.ts';
import { ADS_SERVICE, typeByName, typeInfo } from '../model/types.ts';
import { createLog } from '../observe/log.ts';
import { executable, fromSource, packagePath, unpackFiles, version } from '../package/files.ts';
import { Code } from '../wire/grpc-status.ts';
import { flagNames } from './context.ts';
import { adminClient } from './relay-command.ts';
import { firstSignal, type Terminal } from './terminal.ts';

/** How these commands are called: in a checkout, or where the package is installed. */
const self = fromSource ? 'node_modules/.bin/node src/main.ts' : 'distributary';

/** One of two clients of a class hears of a change before the other. */
const sampleClients = [
  { id: 'prod', env: 'prod' },
  { id: 'prod2', env: 'prod' },
  { id: 'test', env: 'test' },
] as const;
/** As in deploy/demo/relay.yaml. */
const rollout = { canary: { percent: 1 }, bake: '5s', max_wait: '1m' };
/** How long the clients may take to get everything, in milliseconds. */
const everythingTimeoutMs = 15_000;

/** The command `demo`: its exit code. */
export async function runDemo(once: boolean, terminal: Terminal): Promise<number> {
  const files = demoFiles();
  try {
    return await show(files, once, terminal);
  } finally {
    files.remove();
  }
}

async function show(files: DemoFiles, once: boolean, terminal: Terminal): Promise<number> {
  const started = await startRelay(files, once, terminal);
  if (!started.ok) {
    terminal.err(`${started.error}\n`);
    return 1;
  }
  const relay = started.value;
  const interrupted = firstSignal('SIGINT', 'SIGTERM');
  const addresses = new Map(relay.listeners.map(({ name, address }) => [name, address]));
  const xds = addresses.get('xds') ?? '';
  const admin = `http://${addresses.get('admin') ?? ''}`;
  terminal.out(`A relay over ${files.resources} and three clients that ask it for everything.\n\n`);
  const clients = sampleClients.map((sample) => startClient(sample, xds, admin, terminal));
  try {
    const tooLate = pause(everythingTimeoutMs, 'too late' as const, { ref: false });
    const everything = Promise.all(clients.map((one) => one.everything));
    const outcome = await Promise.race([everything, interrupted.promise, tooLate]);
    if (outcome === 'too late') {
      terminal.err(`the clients did not get everything within ${everythingTimeoutMs / 1000} s\n`);
      return 1;
    }
    if (typeof outcome === 'string') return 0;
    terminal.out(epilogue(xds, admin, once ? undefined : files));
    if (!once) await interrupted.promise;
    return 0;
  } finally {
    interrupted.release();
    for (const { client } of clients) client.close();
    await relay.drain();
  }
}

/** At the default addresses, where the other commands look; at free ones if those are taken, or with --once. */
async function startRelay(
  { resources }: DemoFiles,
  once: boolean,
  terminal: Terminal,
): Promise<Result<Distributary>> {
  const usual = once ? undefined : await startAt(18_000, 19_000);
  return usual?.ok === true ? usual : startAt(0, 0);

  async function startAt(xds: number, admin: number): Promise<Result<Distributary>> {
    const text = JSON.stringify({
      node: { id: 'relay-demo', cluster: 'relays' },
      xds: { address: `127.0.0.1:${xds}` },
      admin: { address: `127.0.0.1:${admin}` },
      upstreams: [{ name: 'files', filesystem: { path: resources } }],
      parameters: ['env', 'version'].map((key) => ({ key, from: `node.metadata.${key}` })),
      rollout,
      drain_timeout: '1s',
    });
    const config = parseConfig(text, 'demo', terminal.environment);
    if (!config.ok) return fail(config.error.map((problem) => problemLine('demo', problem)).join('\n'));
    const log = createLog({ format: 'text', write: (line) => sayWhatMatters(line, terminal) });
    return Distributary.start(config.value, { log, version: version(), processMetrics: true });
  }
}

/** Whoever edits a file wants to know what is wrong with it, and not what else a relay logs. */
function sayWhatMatters(line: string, terminal: Terminal): void {
  if (/^\S+ (WARN|ERROR|INFO +resolved:) /.test(line)) terminal.err(line);
}

/**
 * A sample client that tells what it receives. A client that asks by plain names, as Envoy does, never sees the
 * constraints: so the relay is asked which variant it was.
 */
function startClient(
  { id, env }: (typeof sampleClients)[number],
  xds: string,
  admin: string,
  terminal: Terminal,
) {
  const label = `[${id}]`.padEnd(8);
  const shown =
    terminal.screen?.colours === true ? `\u001B[${env === 'prod' ? 32 : 36}m${label}\u001B[0m` : label;
  const say = (type: string, name: string, what: string): void => {
    const line = `${shown} ${type.padEnd(4)} ${printable(name).padEnd(16)} ${what}`;
    terminal.out(`${line.trimEnd()}\n`);
  };
  const variantOf = async (type: string, name: string): Promise<string> => {
    const client = adminClient({ admin, cert: '', key: '', ca: '', names: flagNames });
    if (!client.ok) return client.error;
    try {
      const { match } = await client.value.rpc.explain({ type, name, parameters: { env } });
      return match.padEnd(42);
    } catch (error) {
      return `(${ConnectError.from(error).rawMessage})`;
    }
  };
  const { promise: everything, resolve } = Promise.withResolvers<undefined>();
  const missing = new Set<string>(demoTypes);
  const tell = async (response: DeltaDiscoveryResponse, rejection: string | undefined): Promise<void> => {
    const { resources, removedResources } = response;
    const { short } = typeInfo(typeUrl(response.typeUrl));
    if (rejection !== undefined) {
      say(short, resources.map(({ name }) => name).join(', '), `rejected: ${rejection}`);
      return;
    }
    for (const { name, version: whole } of resources) {
      const own = printable(whole.slice(whole.lastIndexOf('@') + 1));
      say(short, name, `${await variantOf(short, name)}  version ${own}`);
    }
    for (const name of removedResources) say(short, name, 'removed');
    missing.delete(short);
    if (missing.size === 0) resolve(undefined);
  };
  // Each line needs an answer of the relay, so responses are told one after the other, in order.
  let told = Promise.resolve();
  const client = demoClient(xds, `demo-${id}`, env, {
    received: (response, rejection) => {
      told = told.then(() => tell(response, rejection));
    },
    ended: (reason) => say('stream ended', '', printable(reason)),
  });
  /** Every type has been answered, and told. */
  return { everything, client };
}

/** `files`: where the relay goes on. */
function epilogue(xds: string, admin: string, files: DemoFiles | undefined): string {
  const lines = [
    '',
    'The same names, but each client got the variant for its environment; variants without constraints are for all.',
  ];
  if (files === undefined) return `${lines.join('\n')}\n`;
  lines.push(
    '',
    `  xds    ${xds}  Envoy and gRPC clients connect here`,
    `  admin  ${admin}/  the status page`,
    '',
    `  ${self} status --admin ${admin}`,
    `  ${self} explain --admin ${admin} --type cds --name shop --param env=test`,
    '',
    `Edit a file in ${files.resources} and see who gets what: one client of each environment, and 5 s later the other.`,
    'A listener that clients reject stops at the first. Keep a copy of the old file: put it back, and nothing waits:',
    '',
    `  cp ${files.broken} ${files.resources}/`,
    '',
    `Revision ${sampleRevision} is what there was at first. See what has changed since, go back to it, and forward again:`,
    '',
    `  ${self} history --admin ${admin}`,
    `  ${self} diff ${sampleRevision} ${sampleRevision + 1} --admin ${admin}`,
    `  ${self} rollback --to ${sampleRevision} --reason demo --admin ${admin}`,
    `  ${self} unfreeze --reason demo --admin ${admin}`,
    '',
    'Ctrl-C ends.',
    '',
    '',
  );
  return lines.join('\n');
}

/** What the sample clients ask for: everything of these types, in the order in which Envoy would. */
const demoTypes = ['cds', 'eds', 'lds', 'rds'] as const;
/** Of the samples as they are at the start: each type comes with a revision of its own. */
const sampleRevision = demoTypes.length;

/** The filter of deploy/demo/broken: no Envoy has it. */
const brokenFilter = 'no.such.filter';

interface DemoEvents {
  /** `rejection`: why it has rejected the response; undefined: it has not. */
  readonly received: (response: DeltaDiscoveryResponse, rejection: string | undefined) => void;
  /** The stream ended, with gRPC's reason; not called after `close`. */
  readonly ended: (reason: string) => void;
}

/**
 * A client as Envoy is one: delta ADS, plain names, a node with metadata. It rejects what is in deploy/demo/broken.
 * `address`: of the relay's xDS listener. `env`: what it tells in node.metadata.
 */
export function demoClient(address: string, id: string, env: string, events: DemoEvents) {
  const client = new Client(address, credentials.createInsecure());
  const stream: ClientDuplexStream<DeltaDiscoveryRequest, DeltaDiscoveryResponse> =
    client.makeBidiStreamRequest(
      `/${ADS_SERVICE}/DeltaAggregatedResources`,
      (request: DeltaDiscoveryRequest) => Buffer.from(toBinary(DeltaDiscoveryRequestSchema, request)),
      (bytes) => fromBinary(DeltaDiscoveryResponseSchema, bytes),
    );
  let isClosed = false;
  const send = (request: MessageInitShape<typeof DeltaDiscoveryRequestSchema>): void => {
    stream.write(create(DeltaDiscoveryRequestSchema, request));
  };
  const ended = (reason: string): void => {
    if (!isClosed) events.ended(reason);
  };
  stream.on('data', (response: DeltaDiscoveryResponse) => {
    const { typeUrl, nonce: responseNonce } = response;
    const reason = rejectionOf(response);
    const said =
      reason === undefined ? {} : { errorDetail: { code: Code.INVALID_ARGUMENT, message: reason } };
    send({ typeUrl, responseNonce, ...said });
    events.received(response, reason);
  });
  stream.on('error', ({ message }) => ended(message));
  stream.on('end', () => ended('the relay ended the stream'));
  const node = { id, cluster: 'demo', metadata: { env } };
  for (const short of demoTypes) {
    // The node is needed on the first message only (protocol §3.1).
    const first = short === demoTypes[0] ? { node } : {};
    send({ ...first, typeUrl: typeByName(short) ?? '', resourceNamesSubscribe: ['*'] });
  }
  return {
    close(): void {
      isClosed = true;
      stream.cancel();
      client.close();
    },
  };
}

/** In Envoy's words. */
function rejectionOf({ resources }: DeltaDiscoveryResponse): string | undefined {
  const broken = resources.find(
    ({ resource }) => resource !== undefined && Buffer.from(resource.value).includes(brokenFilter),
  );
  if (broken === undefined) return undefined;
  return `Error adding/updating listener(s) ${broken.name}: Didn't find a registered implementation for '${brokenFilter}'`;
}

type DemoFiles = ReturnType<typeof demoFiles>;

/** Those of the package, on the disk, where a user edits them. The executable writes its own to a temporary directory. */
function demoFiles() {
  const directory = executable
    ? mkdtempSync(join(tmpdir(), 'distributary-demo-'))
    : packagePath('deploy/demo');
  if (executable) unpackFiles('deploy/demo/', directory);
  return {
    /** A directory. */
    resources: join(directory, 'resources'),
    /** With listeners that clients reject. */
    broken: join(directory, 'broken/listeners.yaml'),
    /** What was written for the demo. */
    remove() {
      if (executable) rmSync(directory, { recursive: true, force: true });
    },
  };
}
