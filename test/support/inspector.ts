import type { AdminAccess } from '../../src/admin/admin-server.ts';
import { problemsOf } from '../../src/admin/problems.ts';
import {
  type ClientsQuery,
  clientsQuery,
  type ExplainQuery,
  explainQuery,
  logLevelChange,
  type Operation,
  optionalType,
  type ResourcesQuery,
  resourcesQuery,
  valueOf,
} from '../../src/admin/requests.ts';
import type { Inspector, PageFacts, Plain } from '../../src/admin/service.ts';
import type { Client, StatusResponse } from '../../src/gen/distributary/admin/v1/admin_pb.ts';
import type { TypeUrl } from '../../src/model/brand.ts';
import { fail, ok } from '../../src/model/result.ts';
import { rpcError } from '../../src/wire/connect.ts';
import { Code } from '../../src/wire/grpc-status.ts';

const noFacts: PageFacts = {
  file: 'relay.yaml',
  configuration: '',
  configuredAt: 0,
  startedAt: 0,
  readOnly: true,
  usage: [],
  workPerPeerMs: 0,
  certificates: [],
  refusedConfiguration: undefined,
  disk: undefined,
  discarded: undefined,
  recent: {
    minutes: 10,
    acknowledged: 0,
    late: 0,
    rejections: 0,
    turnedAway: [],
    refusedUpdates: [],
    restarts: 0,
    lagMs: 0,
  },
  rollout: undefined,
  controlPlanes: new Map(),
};

/** Nothing is wrong, and nothing has happened. */
export const NO_PAGE: Inspector['page'] = {
  facts: () => noFacts,
  figures: () => [],
  lines: () => [],
  upstreamOf: () => undefined,
};

const known: Omit<Plain<StatusResponse>, 'problems' | 'moreProblems'> = {
  version: '1.2.3',
  uptimeSeconds: 3725,
  ready: true,
  reason: '',
  upstreams: [
    {
      name: 'central',
      kind: 'ads',
      connected: true,
      endpoint: 'cp-1:18000',
      sessions: 2,
      stale: false,
      staleSince: '',
      staleReason: '',
      fromSiblingsSince: '',
      lastError: '',
      heldRemovals: [],
      refusedStreams: 0,
      suspectTypes: [],
    },
    {
      name: 'second',
      kind: 'ads',
      connected: false,
      endpoint: 'cp-2:18000',
      sessions: 0,
      stale: true,
      staleSince: '2026-01-01T00:00:00Z',
      staleReason: 'connection refused',
      fromSiblingsSince: '2026-01-01T00:00:01Z',
      lastError: 'connection refused <b>\n\u001B[31m',
      heldRemovals: [{ type: 'cds', count: 7, since: '2026-01-01T00:00:00Z' }],
      refusedStreams: 1,
      suspectTypes: [{ type: 'debug', since: '2026-11-21T08:00:00.000Z', reason: 'not you' }],
    },
  ],
  types: [{ type: 'cds', resources: 3, variants: 5, subscriptions: 7, ambiguous: 1 }],
  clients: 4,
  pollingClients: 0,
  waveClients: [],
  nacks: [
    {
      kind: 'REJECTED',
      type: 'cds',
      name: '<script>alert(1)</script>',
      version: 'v1',
      clients: 2,
      error: 'no such "filter" & more',
      since: '2026-01-01T00:00:00Z',
      ...{ class: 'c1', parameters: { env: 'prod' }, what: '<script>alert(1)</script>' },
      ...{ why: '', elsewhere: false, otherClasses: 0, nearest: '' },
    },
  ],
  accounts: [],
  rejectingClients: 2,
  cacheBytes: 5_000_000_000n,
  nodeId: 'relay-eu-1',
  host: 'machine-7',
  workers: [],
  warnings: ['xds.address: <everybody> may read'],
};

/** The sample with these changes, and the problems that it has then. */
export function statusWith(changes: Partial<typeof known> = {}): Plain<StatusResponse> {
  const status = { ...known, ...changes };
  const classes = { classes: [], total: 0, streams: 0, problems: status.nacks, missing: {} };
  return { ...status, ...problemsOf({ status, classes, facts: NO_PAGE.facts(), now: 0 }) };
}

export const sampleStatus = statusWith();

const sampleClient: Plain<Client> = {
  id: '17',
  node: { id: 'envoy-1', cluster: 'web' },
  peer: '127.0.0.1:4000',
  transport: 'delta',
  types: [
    {
      type: 'cds',
      version: 'v1',
      state: 'ERROR',
      lastNack: 'bad',
      parameters: { env: 'prod' },
      subscriptions: 1,
      removalState: '',
      lastPoll: '',
      missing: false,
    },
  ],
  service: 'envoy.service.discovery.v3.AggregatedDiscoveryService',
  class: 'c1',
};

interface Calls {
  readonly explain: ExplainQuery[];
  readonly resources: ResourcesQuery[];
  readonly clients: ClientsQuery[];
  readonly operations: Operation[];
  readonly released: (readonly [string, TypeUrl | undefined])[];
}

const nobody = (): never => {
  throw rpcError({ code: Code.NOT_FOUND, message: 'there is nobody' });
};

/** The admin listener's seam, with answers of its own; `calls` records what was asked. */
export function fakeInspector(changes: Partial<Inspector> = {}): Inspector & { readonly calls: Calls } {
  const calls: Calls = { explain: [], resources: [], clients: [], operations: [], released: [] };
  return {
    calls,
    revision: () => 0,
    history: () => ({}),
    diff: nobody,
    rollback: nobody,
    wait: nobody,
    tap: nobody,
    listClasses: () => ({ classes: [], total: 0, streams: 0, problems: [], missing: {} }),
    load: () => ({ loads: [], total: 0, seconds: 0 }),
    listMatches: () => ({ parameterSets: [], names: [], total: 0, totalParameterSets: 0 }),
    getClient: nobody,
    page: NO_PAGE,
    status: () => sampleStatus,
    notKept: () => undefined,
    problems: () => sampleStatus.problems,
    ready: () => ({
      ready: true,
      reason: '',
      rollout: undefined,
      upstreams: known.upstreams.map((upstream) => {
        const row = { ...upstream, required: true, warning: '' };
        if (!row.stale) return row;
        return {
          ...row,
          staleSince: '2026-01-01T00:00:00.000Z',
          fromSiblingsSince: '2026-01-01T00:00:01.000Z',
          lastError: 'connection refused',
          refusedStreams: 2,
        };
      }),
    }),
    explain(request) {
      const query = explainQuery(request);
      calls.explain.push(query);
      if (query.client === 'nobody')
        throw rpcError({ code: Code.NOT_FOUND, message: 'there is no client "nobody"' });
      const parameters = Object.fromEntries(query.parameters?.entries ?? [['env', 'prod']]);
      const matchFound = query.name === 'web' && parameters['env'] === 'prod';
      const variant = {
        constraints: 'env == "prod"',
        version: '7',
        content: '5e1f',
        bytes: 120,
        matches: matchFound,
        reason: matchFound ? 'env == "prod" holds' : 'env == "prod" fails: env is not given',
        since: '2026-01-01T00:00:00Z',
        upstream: 'central',
        name: '',
      };
      return {
        match: matchFound ? variant.constraints : '',
        matchFound,
        variants: query.name === 'web' ? [variant] : [],
        parameters,
        ambiguous: false,
        canary: false,
        staleUpstreams: [],
        otherClasses: 0,
        state: matchFound ? '' : 'absent',
        ...(query.client === undefined ? {} : { client: sampleClient.types[0] }),
      };
    },
    explainClient: ({ client }) => ({
      ...{ client, nodeId: '', parameters: {}, holdings: [], total: 0, states: {}, staleUpstreams: [] },
      truncated: false,
    }),
    listResources(request) {
      calls.resources.push(resourcesQuery(request));
      return { resources: [{ type: 'cds', name: 'web', variants: [] }], nextPageToken: '' };
    },
    getResource: () => valueOf(fail({ code: Code.NOT_FOUND, message: 'nothing is cached' })),
    listClients(request) {
      calls.clients.push(clientsQuery(request));
      return { clients: [sampleClient], total: 4, matching: 4, nextOffset: 0 };
    },
    check: ({ name }) => ({
      check: { name, state: 'GOOD', value: 0.5, reason: '0.5 is within max 1', recent: [] },
    }),
    setLogLevel(request) {
      const { level = '', node = '', milliseconds } = logLevelChange(request);
      return { level: 'info', overrides: [{ node, level, until: new Date(milliseconds).toISOString() }] };
    },
    operate(operation) {
      calls.operations.push(operation);
      return { names: 1, wave: 1, waves: 3 };
    },
    releaseRemovals({ upstream, type }) {
      calls.released.push([upstream, optionalType(type)]);
      if (upstream === 'central') return { removed: 7 };
      throw rpcError({ code: Code.NOT_FOUND, message: `there is no upstream ${JSON.stringify(upstream)}` });
    },
    compareConfiguration: () =>
      valueOf(fail({ code: Code.INVALID_ARGUMENT, message: 'not a configuration' })),
    configDump: () => ({ node: { id: 'relay-1' } }),
    metricsText: () => 'distributary_cache_bytes 1\n',
    clientStatus: () => ok([]),
    ...changes,
  };
}

/** An admin listener's access, as by default. */
export const OPEN = (): AdminAccess => ({ hosts: [], readOnly: false });
