import { hash } from 'node:crypto';
import { resolve } from 'node:path';
import { WorkerDisk } from './cache/persistence/disk.ts';
import {
  Persistence,
  type PersistenceOptions,
  type UpstreamIdentity,
} from './cache/persistence/persistence.ts';
import type { Config, UpstreamConfig } from './config/config.ts';
import { knownTypes } from './model/types.ts';
import { claimant } from './upstream/claims.ts';
import { formatAddress } from './wire/address.ts';

const secrets = knownTypes.filter(({ short }) => short === 'sds').map(({ url }) => url);

/** How long an operator's answer, and the end of the process, wait for the last write, in milliseconds. */
export const lastWriteTimeoutMs = 5000;

/** `config`: the one in force. Undefined: it wants none. */
export function makePersistence(
  config: () => Config,
  around: Pick<PersistenceOptions, 'clock' | 'log' | 'failed' | 'staleSince' | 'sessions'>,
): Persistence | undefined {
  const { persistence } = config().cache;
  if (persistence === undefined) return undefined;
  const { path, leaveOut } = persistence;
  return new Persistence({
    ...around,
    disk: new WorkerDisk(path),
    path,
    leaveOut: persistence.secrets ? leaveOut : [...leaveOut, ...secrets],
    upstreams: () => identities(config()),
    serves: (type, selector) => claimant(config().upstreams, type, selector)?.name,
  });
}

/**
 * What decides the content of an upstream: its kind, its claims and those of the upstreams before it, and the node that
 * it is shown. Not node.id: replicas often take it from their host.
 */
export function identities(config: Config): readonly UpstreamIdentity[] {
  return config.upstreams.map((upstream, index) => {
    const claimed = config.upstreams.slice(0, index + 1).map((one) => one.claims);
    const parts = [upstream.kind, claimed, ...requestedAs(upstream, config)];
    return {
      name: upstream.name,
      text: hash('sha256', JSON.stringify(parts), 'hex'),
      places: places(upstream),
    };
  });
}

/** PER_PARAMETERS stamps variants with the rules' keys, and shows them to the control plane where the rules say. */
function requestedAs(upstream: UpstreamConfig, { parameters, node }: Config): readonly unknown[] {
  if (upstream.kind === 'filesystem') return [];
  const { cluster, metadata, locality } = node;
  const rules = upstream.variants === 'NATIVE' ? [] : parameters;
  const shown = rules.map(({ key, to }) => JSON.stringify([key, to])).toSorted();
  return [upstream.variants, shown, cluster, metadata, locality];
}

function places(upstream: UpstreamConfig): readonly string[] {
  if (upstream.kind === 'filesystem') return [resolve(upstream.path)];
  return upstream.endpoints.map(formatAddress);
}
