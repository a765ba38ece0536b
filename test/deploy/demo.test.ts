import { copyFileSync, cpSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { demoClient } from '../../src/commands/demo.ts';
import { internParameters, type Parameters } from '../../src/model/parameters.ts';
import type { Put } from '../../src/model/transaction.ts';
import { typeInfo } from '../../src/model/types.ts';
import { checkResourceFiles, mergeScan } from '../../src/upstream/filesystem/filesystem-upstream.ts';
import { scanFiles } from '../../src/upstream/filesystem/scan-files.ts';
import { jsonToBytes } from '../../src/wire/registry.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { reaches } from '../e2e/support/rollout-state.ts';

const directory = fileURLToPath(new URL('../../deploy/demo/', import.meta.url));
const resources = `${directory}resources`;
const sets = [
  { env: 'prod' },
  { env: 'test' },
  { env: 'prod', version: 'v1' },
  { env: 'test', version: 'v1' },
].map((entries) => internParameters(Object.entries(entries)));

async function load(): Promise<Map<string, ReadonlyMap<string, readonly Put[]>>> {
  const scan = await scanFiles(resources, new Map(), 64, Date.now, () => {});
  if (!scan.ok) throw new Error(scan.error);
  const { types } = mergeScan(scan.value, () => true);
  return new Map(
    [...types].map(([type, { puts }]) => [typeInfo(type).short, Map.groupBy(puts, ({ name }) => name)]),
  );
}

function visible(byName: ReadonlyMap<string, readonly Put[]> | undefined, parameters: Parameters): string[] {
  return [...(byName ?? [])].flatMap(([name, puts]) =>
    puts.filter(({ constraints }) => constraints.matches(parameters)).map(() => name),
  );
}

describe('deploy/demo', () => {
  it('every resource file is good', async () => {
    expect(await checkResourceFiles(resources, 64, () => true)).to.deep.equal([]);
    expect([...(await load()).keys()]).to.deep.equal(['cds', 'eds', 'lds', 'rds']);
  });

  it('each client of the demo sees exactly one variant of each name', async () => {
    const types = await load();
    for (const parameters of sets) {
      const test = parameters.entries.get('env') === 'test';
      const why = parameters.key;
      expect(visible(types.get('lds'), parameters), why).to.deep.equal(test ? ['web', 'debug'] : ['web']);
      expect(visible(types.get('rds'), parameters), why).to.deep.equal(['web']);
      expect(visible(types.get('cds'), parameters), why).to.deep.equal(['shop', 'recommendations']);
      expect(visible(types.get('eds'), parameters), why).to.deep.equal(['shop', 'recommendations']);
    }
    expect(types.get('cds')?.get('shop'), 'env × version').to.have.length(4);
  });

  it("Envoy's bootstrap is one", () => {
    const json: unknown = parse(readFileSync(`${directory}envoy-prod.yaml`, 'utf8'));
    const bytes = jsonToBytes('envoy.config.bootstrap.v3.Bootstrap', json);
    expect(bytes.ok, bytes.ok ? '' : bytes.error[0]?.message).to.equal(true);
  });

  it('the bad file stops at one client of each environment, and the good one ends it', async () => {
    using files = temporaryDirectory();
    cpSync(resources, files.path, { recursive: true });
    const config = z
      .record(z.string(), z.unknown())
      .parse(parse(readFileSync(`${directory}relay.yaml`, 'utf8')));
    const upstreams = [{ name: 'files', filesystem: { path: files.path } }];
    const free = { address: '127.0.0.1:0' };
    await using relay = await RelayProcess.start({ ...config, upstreams, xds: free, admin: free });
    const has = new Map<string, Set<string>>();
    const rejected: string[] = [];
    const clients = ['prod', 'prod2', 'test'].map((id) => {
      has.set(id, new Set());
      return demoClient(relay.xds, id, id.slice(0, 4), {
        received({ typeUrl }, rejection) {
          if (rejection === undefined) has.get(id)?.add(typeUrl);
          else rejected.push(id);
        },
        ended: () => {},
      });
    });
    try {
      await eventually(() => {
        for (const types of has.values()) expect(types.size).to.equal(4);
      });
      copyFileSync(`${directory}broken/listeners.yaml`, `${files.path}/listeners.yaml`);
      expect((await reaches(relay, 'HELD')).reason).to.match(/^lds web: .*no\.such\.filter/);
      await eventually(() => expect(rejected).to.have.length(2));
      expect(rejected).to.include('test');
      copyFileSync(`${resources}/listeners.yaml`, `${files.path}/listeners.yaml`);
      await reaches(relay, 'IDLE');
      expect(rejected).to.have.length(2);
    } finally {
      for (const client of clients) client.close();
    }
  });
});
