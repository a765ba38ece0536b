import { chmodSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { issueCertificate } from '../support/certificates.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { PemFiles } from './support/pem-files.ts';
import { everywhere, isOver, patient } from './support/problems.ts';
import { ClientPool } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';

describe('a problem is on the page, in status, in --check and on /ready alike', function () {
  this.timeout(120_000);

  it('a refused configuration, until one is accepted', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['a', '1']]));
    const config: RelayConfig = { upstreams: [files.upstream] };
    await using relay = await RelayProcess.start(config);
    relay.configure('nodes: {}\n');
    expect(await everywhere(relay, 'configuration_refused', 1)).to.match(
      /^The new configuration is refused: .*:1:1: nodes: /,
    );
    relay.configure(config);
    await isOver(relay, 'configuration_refused');
  });

  it('a file that is refused, until it is repaired', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['a', '1']]));
    await using relay = await RelayProcess.start({ upstreams: [files.upstream] });
    files.writeText('broken.json', '{ "resources": [ {} ] }');
    expect(await everywhere(relay, 'updates_refused', 1)).to.include('broken.json');
    files.writeText('broken.json', '{ "resources": [] }');
    await isOver(relay, 'updates_refused');
  });

  it('a certificate pair that is refused, until a good one comes, and one that expires soon', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['a', '1']]));
    using pem = new PemFiles();
    const [first, second] = ['first', 'second'].map((name) => issueCertificate({ name, days: 30 }));
    if (first === undefined || second === undefined) throw new Error('there are two');
    const tls = pem.identity('xds', first);
    await using relay = await RelayProcess.start({ upstreams: [files.upstream], xds: { tls } });
    pem.identity('xds', { ...first, privateKey: second.privateKey });
    expect(await everywhere(relay, 'certificate_refused', 1)).to.match(
      /^The new certificate of xds is refused: .*; the previous certificate stays in use$/,
    );
    const short = issueCertificate({ name: 'third', days: 0.5 });
    pem.identity('xds', short);
    expect(await everywhere(relay, 'certificate_expires', 2)).to.match(
      /^The certificate of xds expires soon: /,
    );
    await isOver(relay, 'certificate_refused');
  });

  it('clients that a limit refuses', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
      limits: { max_streams: 2 },
    });
    using pool = new ClientPool(relay.xds, 1);
    const clients = [pool.open('delta', 'a'), pool.open('delta', 'b')];
    for (const client of clients) {
      client.subscribe('cds');
      await client.gets('cds', { a: '1' });
    }
    pool.open('delta', 'c').subscribe('cds');
    expect(await everywhere(relay, 'clients_turned_away', 2)).to.include('streams: 1');
    expect(await everywhere(relay, 'limit_near', 2)).to.include('limits.max_streams is at 100%');
  });

  it('a control plane that is away, and workers that end again and again', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
      workers: 1,
    });
    const pids = new Set<number>();
    const worker = z.object({ workers: z.array(z.object({ pid: z.number(), listening: z.boolean() })) });
    while (pids.size < 3) {
      await eventually(async () => {
        const { body } = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
        const [first] = worker.parse(JSON.parse(body)).workers;
        expect(first?.listening === true && !pids.has(first.pid)).to.equal(true);
        pids.add(first?.pid ?? 0);
        process.kill(first?.pid ?? 0, 'SIGKILL');
      }, patient);
    }
    expect(await everywhere(relay, 'workers_restart', 2)).to.match(/restarted 3 times.*SIGKILL/);
    await plane[Symbol.asyncDispose]();
    expect(await everywhere(relay, 'upstream_away', 2)).to.match(/^Upstream central is unreachable: /);
  });

  it('a disk that cannot be written, until it can', async () => {
    using directory = temporaryDirectory();
    const path = join(directory.path, 'kept');
    // Where a directory of the database should be, there is a file.
    writeFileSync(path, 'no directory');
    using files = new ResourceFiles();
    files.write('cds', new Map([['a', '1']]));
    await using relay = await RelayProcess.start({
      upstreams: [files.upstream],
      cache: { persistence: { path } },
    });
    expect(await everywhere(relay, 'disk_fails', 1)).to.match(/^The cache cannot be written to disk: /);
    renameSync(path, `${path}.moved`);
    mkdirSync(path);
    chmodSync(path, 0o700);
    files.write('cds', new Map([['a', '2']]));
    await isOver(relay, 'disk_fails');
  });
});
