import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { credentials } from '@grpc/grpc-js';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { ClientStatusDiscoveryService } from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { envoyBinary } from '../e2e/support/envoy-binary.ts';
import { root, temporaryDirectory } from '../e2e/support/paths.ts';
import { run } from '../e2e/support/process.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { need } from '../e2e/support/skip.ts';
import { deltaNames, XdsClient } from '../e2e/support/xds-client.ts';

const page = readFileSync(join(root, 'docs/tenants.md'), 'utf8');

/** The one fenced block of the page with this info string. */
function block(info: string): string {
  const found = [...page.matchAll(/^```(.*)\n([^]*?)^```$/gm)].find(([, name]) => name === info)?.[2];
  if (found === undefined) throw new Error(`docs/tenants.md has no block ${info}`);
  return found;
}

const config = z.looseObject({ xds: z.looseObject({}), upstreams: z.array(z.looseObject({})) });

describe('tenants and mutual TLS, step by step', () => {
  const directory = temporaryDirectory();
  const file = (name: string): string => join(directory.path, name);
  let relay: RelayProcess;

  before(async () => {
    await run({ command: 'sh', args: ['-e', '-c', block('sh tenants')], cwd: directory.path });
    mkdirSync(file('resources'));
    for (const name of ['clusters.yaml', 'secrets.yaml'])
      writeFileSync(file(join('resources', name)), block(`yaml ${name}`));
    const text = block('yaml relay')
      .replaceAll(/\b(relay[.]crt|relay[.]key|ca[.]crt)\b/g, (name) => file(name))
      .replace('path: resources', `path: ${file('resources')}`)
      .replace('127.0.0.1:18000', '127.0.0.1:0');
    relay = await RelayProcess.start(config.parse(parse(text)));
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    directory[Symbol.dispose]();
  });

  const pem = (name: string): Buffer => readFileSync(file(name));
  const client = (name: string): XdsClient =>
    new XdsClient(relay.xds, 'delta', {
      secure: credentials.createSsl(pem('ca.crt'), pem(`${name}.key`), pem(`${name}.crt`)),
      serverName: 'localhost',
    });
  const statusOf = async (name: string): Promise<string[]> => {
    const transport = createGrpcTransport({
      baseUrl: `https://${relay.xds}`,
      nodeOptions: { ca: pem('ca.crt'), key: pem(`${name}.key`), cert: pem(`${name}.crt`) },
      idleConnectionTimeoutMs: 100,
    });
    const { config: clients } = await createClient(ClientStatusDiscoveryService, transport).fetchClientStatus(
      {},
    );
    return clients.map(({ node }) => node?.id ?? '');
  };
  const contains = (bytes: readonly Buffer[], text: string): boolean =>
    bytes.some((one) => one.includes(text));

  it('gives each tenant its own clusters, whatever it asks for', async () => {
    await using shop = client('shop');
    shop.subscribe('cds');
    expect(contains((await shop.gets('cds')).first, 'orders-of-shop')).to.equal(true);
    await using bank = client('bank');
    bank.delta('cds', {
      resourceLocatorsSubscribe: [{ name: 'orders', dynamicParameters: { tenant: 'shop' } }],
    });
    const { first } = await bank.gets('cds');
    expect(contains(first, 'orders-of-bank')).to.equal(true);
    expect(contains(first, 'orders-of-shop')).to.equal(false);
  });

  it('gives each tenant its own secrets; the others are as if they did not exist', async () => {
    await using shop = client('shop');
    shop.subscribe('sds', ['shop-key', 'bank-key']);
    const said = await shop.gets('sds');
    expect(deltaNames(said)).to.deep.equal(['shop-key']);
    expect(contains(said.first, 'of the bank')).to.equal(false);
  });

  it('tells a tenant of its own streams, and the operator of all', async () => {
    const nodes = { shop: { id: 'shop-1' }, bank: { id: 'bank-1' } };
    const open = (name: 'shop' | 'bank'): XdsClient =>
      new XdsClient(relay.xds, 'delta', {
        node: nodes[name],
        secure: credentials.createSsl(pem('ca.crt'), pem(`${name}.key`), pem(`${name}.crt`)),
        serverName: 'localhost',
      });
    await using shop = open('shop');
    await using bank = open('bank');
    for (const one of [shop, bank]) {
      one.subscribe('cds');
      await one.gets('cds');
    }
    expect(await statusOf('bank')).to.deep.equal(['bank-1']);
    expect(await statusOf('operator')).to.include.members(['bank-1', 'shop-1', 'relay']);
  });

  it('lets nobody connect without a certificate', async () => {
    await using nobody = new XdsClient(relay.xds, 'delta', {
      secure: credentials.createSsl(pem('ca.crt')),
      serverName: 'localhost',
    });
    nobody.subscribe('cds');
    expect((await nobody.ends()).code).to.equal(14);
  });

  it('has a bootstrap that Envoy takes', async function () {
    const envoy = await need(this, envoyBinary());
    writeFileSync(file('envoy.yaml'), block('yaml envoy'));
    await run({ command: envoy, args: ['--mode', 'validate', '-c', 'envoy.yaml'], cwd: directory.path });
  });
});
