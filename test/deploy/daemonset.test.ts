import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { blocksIn } from '../docs/page.ts';
import { ControlPlane, controlPlaneBinary } from '../e2e/support/controlplane.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { goBinary } from '../e2e/support/go.ts';
import { startGrpcBackend } from '../e2e/support/grpc-backend.ts';
import { GrpcXdsClient } from '../e2e/support/grpc-xds.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { recipePath, startRecipe } from '../e2e/support/recipe.ts';
import type { RelayProcess } from '../e2e/support/relay.ts';
import { grpcService } from '../e2e/support/resources.ts';
import { need } from '../e2e/support/skip.ts';

const read = (name: string): string => readFileSync(recipePath(`daemonset/${name}`), 'utf8');
const blockOf = (info: string): string =>
  blocksIn(read('README.md')).find((block) => block.info === info)?.text ?? '';

const bootstrap = z.looseObject({ xds_servers: z.tuple([z.looseObject({ server_uri: z.string() })]) });
const mounts = z.array(z.looseObject({ name: z.string(), mountPath: z.string() }));
const manifest = z.looseObject({
  spec: z.looseObject({
    template: z.looseObject({
      spec: z.looseObject({
        containers: z.tuple([z.looseObject({ args: z.array(z.string()), volumeMounts: mounts })]),
        volumes: z.array(
          z.looseObject({ name: z.string(), hostPath: z.looseObject({ path: z.string() }).optional() }),
        ),
      }),
    }),
  }),
});
const namespace = z.object({
  metadata: z.object({ name: z.string(), labels: z.record(z.string(), z.string()) }),
});

const targets = ['shop', 'office', 'lager', 'yard'];

describe('deploy/recipes/daemonset', () => {
  it('four targets of grpc-go over the socket are four streams here and one upstream, after a kill too', async function () {
    const binary = await need(this, controlPlaneBinary());
    const command = await need(this, goBinary('grpcclient'));
    await using stack = new AsyncDisposableStack();
    const one = stack.use(await startGrpcBackend('one'));
    const two = stack.use(await startGrpcBackend('two'));
    const plane = stack.use(await ControlPlane.start(binary, { cache: 'snapshot' }));
    const services = (port: number) => targets.flatMap((name) => grpcService(name, port));
    await plane.set(services(one.port));
    const run = stack.use(temporaryDirectory()).path;
    const socket = join(run, 'xds.sock');
    const state = stack.use(temporaryDirectory()).path;
    const start = (): Promise<RelayProcess> => {
      const env = { RUN: run, STATE: state, CONTROL_PLANE: plane.address, METRICS: '127.0.0.1:0' };
      return startRecipe('daemonset/relay.yaml', env);
    };
    const relay = await start();
    expect(statSync(socket).mode & 0o777, 'pods have users of their own').to.equal(0o666);

    const written = bootstrap.parse(JSON.parse(blockOf('json')));
    const [server] = written.xds_servers;
    const server_uri = server.server_uri.replace('/run/distributary', run);
    expect(server_uri).to.equal(`unix://${socket}`);
    const client = stack.use(
      new GrpcXdsClient(
        { xds: relay.xds, bootstrap: { ...written, xds_servers: [{ ...server, server_uri }] } },
        { command, args: [] },
      ),
    );
    for (const name of targets) await client.answers(name, 'one');
    expect(await relay.clients()).to.have.length(targets.length);
    expect(await relay.metric('upstream_sessions')).to.equal(1);
    expect((await plane.stats()).open).to.equal(1);

    await relay.kill();
    await plane.set(services(two.port));
    for (const name of targets) expect(await client.call(name)).to.equal('answer one');
    const again = stack.use(await start());
    for (const name of targets) await client.answers(name, 'two');
    await eventually(async () => {
      expect(await again.clients()).to.have.length(targets.length);
      expect((await plane.stats()).open).to.equal(1);
    });
  });

  it('the manifest has the directories of the configuration, and the pods that of the manifest', () => {
    const { containers, volumes } = manifest.parse(parse(read('daemonset.yaml'))).spec.template.spec;
    const [{ args, volumeMounts }] = containers;
    const mountOf = (name: string) => volumeMounts.find((mount) => mount.name === name)?.mountPath;
    const defaults = [...read('relay.yaml').matchAll(/\$\{(RUN|STATE):-([^}]*)\}/g)];
    expect(defaults.map(([, , path]) => path)).to.deep.equal([mountOf('run'), mountOf('state')]);
    expect(args).to.deep.equal(['run', '--config', `${mountOf('config') ?? ''}/relay.yaml`]);
    const directory = volumes.find(({ name }) => name === 'run')?.hostPath?.path ?? '';
    const pod = blockOf('yaml');
    expect(pod).to.include(`path: ${directory},`).and.to.include(`mountPath: ${directory},`);
    expect(blockOf('json')).to.include(`unix://${directory}/xds.sock`);
  });

  it('the namespace is made with it, and its Pod Security level allows what the pods have', () => {
    const built = z
      .object({ namespace: z.string(), resources: z.array(z.string()) })
      .parse(parse(read('kustomization.yaml')));
    expect(built.resources).to.include('namespace.yaml');
    const { metadata } = namespace.parse(parse(read('namespace.yaml')));
    expect(metadata.name).to.equal(built.namespace);
    expect(metadata.labels).to.include({ 'pod-security.kubernetes.io/enforce': 'privileged' });
  });
});
