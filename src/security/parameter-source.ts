import { nodePath } from '../model/node-path.ts';
import type { Peer } from '../wire/server-stream.ts';
import type { ClientNode, Metadata } from './client-node.ts';

/** What a rule's `from` reads of a client: several values of a certificate, else one or none. */
export type ParameterSource = (node: ClientNode, peer: Peer) => readonly string[];

const sources: ReadonlyMap<string, ParameterSource> = new Map<string, ParameterSource>([
  ['node.id', (node) => given(node.id)],
  ['node.cluster', (node) => given(node.cluster)],
  ['node.locality.region', (node) => given(node.locality.region)],
  ['node.locality.zone', (node) => given(node.locality.zone)],
  ['node.locality.sub_zone', (node) => given(node.locality.subZone)],
  ['node.user_agent_name', (node) => given(node.userAgentName)],
  ['node.user_agent_version', (node) => given(node.userAgentVersion)],
  ['peer.uri_san', (_node, peer) => peer.uriSans],
  ['peer.dns_san', (_node, peer) => peer.dnsSans],
]);

/** For a path that the configuration's schema has accepted; what it would not accept reads nothing. */
export function parameterSource(from: string): ParameterSource {
  if (!/^node\.metadata[.[]/.test(from)) return sources.get(from) ?? (() => []);
  const [, ...keys] = nodePath(from) ?? [];
  return (node) => metadataText(node.metadata, keys);
}

/** The proto cannot tell an empty string from none. */
const given = (text: string): readonly string[] => (text === '' ? [] : [text]);

function metadataText(metadata: Metadata, keys: readonly string[]): readonly string[] {
  let value: string | Metadata | undefined = metadata;
  for (const key of keys) {
    if (value === undefined || typeof value === 'string') return [];
    value = value.get(key);
  }
  return typeof value === 'string' ? [value] : [];
}
