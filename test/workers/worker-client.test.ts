import { statSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import type { ConnectRouter, ServiceImpl } from '@connectrpc/connect';
import { expect } from 'chai';
import { ALL_CLIENTS, type ClientStatusQuery } from '../../src/admin/csds.ts';
import { adminRoutes } from '../../src/admin/rpc.ts';
import { WorkerService } from '../../src/gen/distributary/workers/v1/workers_pb.ts';
import {
  ClientStatusRequestSchema,
  type ClientStatusResponse,
  ClientStatusResponseSchema,
} from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { systemClock } from '../../src/model/clock.ts';
import { fail, ok, type Result } from '../../src/model/result.ts';
import { ASKER_GONE, rpcError } from '../../src/wire/connect.ts';
import { Code, type GrpcStatus } from '../../src/wire/grpc-status.ts';
import { listenPrivately } from '../../src/workers/private-socket.ts';
import { clientStatusBy, WorkerClient } from '../../src/workers/worker-client.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { fakeInspector } from '../support/inspector.ts';

type Answered<T> = Result<T, GrpcStatus>;
const status = (client: WorkerClient) => client.ask((to) => to.status({}));
const codeOf = (answered: Answered<unknown>): Code => (answered.ok ? Code.OK : answered.error.code);

describe('what the primary asks a worker', () => {
  let stack: AsyncDisposableStack;
  beforeEach(() => {
    stack = new AsyncDisposableStack();
  });
  afterEach(() => stack.disposeAsync());

  const socket = (): string => join(stack.use(temporaryDirectory()).path, 'worker-1');

  /** Bugs are collected. */
  async function start(routes: (router: ConnectRouter) => void, timeoutMs?: number) {
    const path = socket();
    const bugs: unknown[] = [];
    const opened = await listenPrivately(path, routes, (error) => bugs.push(error));
    if (!opened.ok) throw new Error(opened.error);
    const server = opened.value;
    const close = (): void => {
      server.close();
      server.closeAllConnections();
    };
    stack.defer(close);
    return { path, bugs, close, client: new WorkerClient(path, timeoutMs) };
  }

  const admin = (router: ConnectRouter) => adminRoutes(router, fakeInspector(), () => {});
  const worker = (answers: Partial<ServiceImpl<typeof WorkerService>>) => (router: ConnectRouter) =>
    router.service(WorkerService, answers);

  it('is on a socket that only this user can reach, in the place of one that was left behind', async () => {
    const { path, close } = await start(admin);
    expect((statSync(path).mode & 0o777).toString(8)).to.equal('600');
    close();
    await using left = createServer();
    await new Promise<void>((resolve) => {
      left.listen(path, resolve);
    });
    const again = await listenPrivately(path, admin, () => {});
    if (!again.ok) throw new Error(again.error);
    stack.use(again.value);
    expect(codeOf(await status(new WorkerClient(path)))).to.equal(Code.OK);
  });

  it('Status, ListClients and Explain: what concerns clients', async () => {
    const { client } = await start(admin);
    const asked = await status(client);
    expect(asked.ok ? [asked.value.clients, asked.value.types[0]?.subscriptions] : asked).to.deep.equal([
      4, 7,
    ]);
    const list = await client.askInTurn((to) => to.listClients({ limit: 10 }));
    expect(list.ok ? [list.value.total, list.value.clients.map(({ id }) => id)] : list).to.deep.equal([
      4,
      ['17'],
    ]);
    const found = await client.ask((to) => to.explain({ client: '17', type: 'cds', name: 'web' }));
    expect(found.ok ? [found.value.parameters, found.value.client?.type] : found).to.deep.equal([
      { env: 'prod' },
      'cds',
    ]);
  });

  it('a refusal arrives as it was, a bug as INTERNAL', async () => {
    const { client } = await start(admin);
    expect(
      await client.ask((to) => to.explain({ client: 'nobody', type: 'cds', name: 'web' })),
    ).to.deep.equal(fail({ code: Code.NOT_FOUND, message: 'there is no client "nobody"' }));
    const broken = fakeInspector({
      status: () => {
        throw new Error('a bug');
      },
    });
    const { client: asking } = await start((router) => adminRoutes(router, broken, () => {}));
    expect(codeOf(await status(asking))).to.equal(Code.INTERNAL);
  });

  it('CSDS: scope and bound arrive, the answer comes back byte for byte', async () => {
    const asked: ClientStatusQuery[] = [];
    const pieces = ['one', 'two'].map((id) => toBinary(ClientStatusResponseSchema, configOf(id)));
    const clientStatus = clientStatusBy((query) => {
      asked.push(query);
      return query.maxBytes === 0
        ? fail({ code: Code.RESOURCE_EXHAUSTED, message: 'too large' })
        : ok(pieces);
    });
    const { client } = await start(worker({ clientStatus }));
    const request = create(ClientStatusRequestSchema, { excludeResourceContents: true });
    const identity = 'spiffe://example.com/ä,b\n';
    const answered = await client.configs({ scope: { kind: 'identity', identity }, request, maxBytes: 77 });
    expect(answered.ok ? Buffer.concat(answered.value) : answered).to.deep.equal(Buffer.concat(pieces));
    expect(
      answered.ok
        ? fromBinary(ClientStatusResponseSchema, Buffer.concat(answered.value)).config.map(
            ({ clientScope }) => clientScope,
          )
        : [],
    ).to.deep.equal(['one', 'two']);
    const refused = await client.configs({ scope: ALL_CLIENTS, request, maxBytes: 0 });
    expect(refused).to.deep.equal(fail({ code: Code.RESOURCE_EXHAUSTED, message: 'too large' }));
    expect(asked.map(({ scope, maxBytes }) => [scope, maxBytes])).to.deep.equal([
      [{ kind: 'identity', identity }, 77],
      [ALL_CLIENTS, 0],
    ]);
    expect(asked[0]?.request.excludeResourceContents).to.equal(true);
  });

  it('CSDS of nobody is empty', async () => {
    const { client } = await start(worker({ clientStatus: clientStatusBy(() => ok([])) }));
    const request = create(ClientStatusRequestSchema);
    expect(await client.configs({ scope: ALL_CLIENTS, request, maxBytes: 100 })).to.deep.equal(ok([]));
  });

  it('metrics: quantiles without observations stay NaN', async () => {
    const series = [
      { name: 'a', help: '', type: 'gauge', values: [{ value: Number.NaN, labels: { q: 0.5 } }] },
    ];
    const { client } = await start(worker({ series: () => ({ value: JSON.stringify(series) }) }));
    expect(await client.series()).to.deep.equal(ok(series));
  });

  it('a worker that is silent: DEADLINE_EXCEEDED, for each question', async () => {
    const silent = () => new Promise<never>(() => {});
    const inspector = fakeInspector({ status: silent });
    const { client } = await start((router) => {
      adminRoutes(router, inspector, () => {});
      worker({ series: silent })(router);
    }, 50);
    expect(codeOf(await status(client))).to.equal(Code.DEADLINE_EXCEEDED);
    expect(codeOf(await client.series())).to.equal(Code.DEADLINE_EXCEEDED);
  });

  it('a worker compares no configuration for longer than somebody waits', async () => {
    const ended: AbortSignal[] = [];
    const inspector = fakeInspector({
      compareConfiguration: async (_, { signal }) => {
        await new Promise((resolve) => {
          signal.addEventListener('abort', resolve);
        });
        ended.push(signal);
        throw rpcError(ASKER_GONE);
      },
    });
    const bugs: unknown[] = [];
    const { client } = await start(
      (router) => adminRoutes(router, inspector, (error) => bugs.push(error)),
      200,
    );
    const late = await client.ask((to) => to.compareConfiguration({ text: '' }));
    expect(codeOf(late)).to.equal(Code.DEADLINE_EXCEEDED);
    const signal = AbortSignal.timeout(50);
    await client.ask((to) => to.compareConfiguration({ text: '' }, { signal, timeoutMs: 0 }));
    await eventually(() => expect(ended).to.have.length(2));
    expect(bugs).to.deep.equal([]);
  });

  it('long answers are asked for one after the other', async () => {
    let open = 0;
    let most = 0;
    const slowly = async (): Promise<void> => {
      most = Math.max(most, ++open);
      await new Promise((resolve) => {
        systemClock.after(20, () => resolve(undefined));
      });
      open--;
    };
    const fake = fakeInspector();
    const inspector = fakeInspector({
      listClients: async (request) => {
        await slowly();
        return fake.listClients(request);
      },
    });
    const clientStatus = clientStatusBy(async () => {
      await slowly();
      return ok([]);
    });
    const { client } = await start((router) => {
      adminRoutes(router, inspector, () => {});
      worker({ clientStatus })(router);
    });
    const list = () => client.askInTurn((to) => to.listClients({ limit: 10 }));
    const request = create(ClientStatusRequestSchema);
    const csds = () => client.configs({ scope: ALL_CLIENTS, request, maxBytes: 100 });
    const answers = await Promise.all<Answered<unknown>>([list(), csds(), list(), csds()]);
    expect(answers.map(codeOf)).to.deep.equal([Code.OK, Code.OK, Code.OK, Code.OK]);
    expect(most).to.equal(1);
  });

  it('a worker that has ended, or ends before it answers: UNAVAILABLE', async () => {
    const nobody = new WorkerClient(socket());
    expect(codeOf(await status(nobody))).to.equal(Code.UNAVAILABLE);
    expect(codeOf(await nobody.series())).to.equal(Code.UNAVAILABLE);
    let open = 0;
    const asked = Promise.withResolvers<undefined>();
    const silent = () => {
      open++;
      if (open === 2) asked.resolve(undefined);
      return new Promise<never>(() => {});
    };
    const { client, close, bugs } = await start((router) => {
      adminRoutes(router, fakeInspector({ status: silent }), () => {});
      worker({ series: silent })(router);
    });
    const answers = [status(client), client.series()];
    await asked.promise;
    close();
    for (const answered of await Promise.all<Answered<unknown>>(answers)) {
      expect(codeOf(answered)).to.equal(Code.UNAVAILABLE);
    }
    expect(bugs).to.deep.equal([]);
  });
});

const configOf = (clientScope: string): ClientStatusResponse =>
  create(ClientStatusResponseSchema, { config: [{ clientScope }] });
