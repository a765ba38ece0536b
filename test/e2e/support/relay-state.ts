import { z } from 'zod';
import { eventually } from './eventually.ts';
import type { RelayProcess } from './relay.ts';

const readyUpstream = z.object({
  name: z.string(),
  connected: z.boolean(),
  stale: z.boolean(),
  since: z.string().nullable(),
});
const ready = z.object({ reason: z.string(), upstreams: z.array(readyUpstream) });

const status = z.object({
  upstreams: z.array(
    z.object({
      endpoint: z.string(),
      held_removals: z.array(z.object({ type: z.string(), count: z.number(), since: z.string() })),
    }),
  ),
  nacks: z.array(
    z.object({
      type: z.string(),
      name: z.string(),
      clients: z.number(),
      error: z.string(),
      version: z.string(),
      what: z.string(),
    }),
  ),
  rejecting_clients: z.number(),
  types: z.array(z.object({ type: z.string(), resources: z.number(), ambiguous: z.number() })),
});

const clients = z.object({
  /** Of workers that took too long: their clients are left out. */
  no_answer: z.undefined().optional(),
  clients: z.array(
    z.object({
      id: z.string(),
      node: z.object({ id: z.string() }),
      types: z.array(z.object({ type: z.string(), state: z.string(), last_nack: z.string() })),
    }),
  ),
});

const csds = z.object({
  config: z.array(
    z.object({
      node: z.object({ id: z.string() }).nullish(),
      generic_xds_configs: z.array(z.object({ config_status: z.string().default('') })),
    }),
  ),
});

const admin = 'distributary.admin.v1.AdminService';
const statusService = 'envoy.service.status.v3.ClientStatusDiscoveryService';

/** What /ready says of the first upstream, and its HTTP status. */
export async function readyOf(
  relay: RelayProcess,
): Promise<z.infer<typeof readyUpstream> & { status: number }> {
  const answer = await relay.get('/ready');
  const [first] = ready.parse(JSON.parse(answer.body)).upstreams;
  if (first === undefined) throw new Error('there is no upstream');
  return { ...first, status: answer.status };
}

/** Once what is cached is current. */
export async function checkCurrent(relay: RelayProcess): Promise<void> {
  if ((await readyOf(relay)).stale) throw new Error('what is cached may be out of date');
}

export async function statusOf(relay: RelayProcess): Promise<z.infer<typeof status>> {
  return status.parse(JSON.parse((await relay.rpc(`${admin}/Status`, {})).body));
}

export async function endpointOf(relay: RelayProcess): Promise<string> {
  return (await statusOf(relay)).upstreams[0]?.endpoint ?? '';
}

/** Those of all workers. */
export function clientsOf(relay: RelayProcess): Promise<z.infer<typeof clients>['clients']> {
  return eventually(
    async () => clients.parse(JSON.parse((await relay.rpc(`${admin}/ListClients`, {})).body)).clients,
  );
}

/** CSDS by Connect: the states of a node's resources. */
export async function csdsOf(relay: RelayProcess, node: string): Promise<readonly string[]> {
  const { body } = await relay.rpc(`${statusService}/FetchClientStatus`, {});
  const config = csds.parse(JSON.parse(body)).config.find((one) => one.node?.id === node);
  return config?.generic_xds_configs.map(({ config_status }) => config_status) ?? [];
}
