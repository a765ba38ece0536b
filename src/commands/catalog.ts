import type { Command } from './command.ts';

export interface CatalogEntry {
  readonly name: string;
  /** For the list of commands. */
  readonly does: string;
  /** Called when it is asked for: a probe's `status` need not wait for a server's modules. */
  readonly load: () => Promise<Command>;
}

// biome-ignore format: a table, one command a line
export const catalog: readonly CatalogEntry[] = [
  { name: 'run', does: 'the relay', load: async () => (await import('./run.ts')).run },
  { name: 'validate', does: 'checks a configuration without running it', load: async () => (await import('./validate.ts')).validate },
  { name: 'status', does: 'upstreams, clients, types and rejections of a running relay', load: async () => (await import('./status.ts')).status },
  { name: 'clients', does: 'who is connected, with what was sent and whether it was accepted', load: async () => (await import('./clients.ts')).clients },
  { name: 'resources', does: 'what is cached', load: async () => (await import('./resources.ts')).resources },
  { name: 'get', does: 'a resource as YAML, or what a client was sent of it', load: async () => (await import('./get.ts')).get },
  { name: 'explain', does: 'which variant of a resource a client gets, and why', load: async () => (await import('./explain.ts')).explain },
  { name: 'history', does: 'what has changed', load: async () => (await import('./history.ts')).history },
  { name: 'diff', does: 'what differs between two revisions, clients or parameter sets', load: async () => (await import('./diff.ts')).diff },
  { name: 'wait', does: 'until every client has accepted what upstream has', load: async () => (await import('./wait.ts')).wait },
  { name: 'tap', does: 'messages to and from clients, live', load: async () => (await import('./tap.ts')).tap },
  { name: 'rollback', does: 'the gated types as they were after a revision', load: async () => (await import('./rollback.ts')).rollback },
  { name: 'freeze', does: 'nothing that is known changes, until unfreeze', load: async () => (await import('./operations.ts')).freeze },
  { name: 'unfreeze', does: 'ends a freeze', load: async () => (await import('./operations.ts')).unfreeze },
  { name: 'release', does: 'a change that only canaries have: for everybody', load: async () => (await import('./operations.ts')).release },
  { name: 'discard', does: 'a change that only canaries have: for nobody', load: async () => (await import('./operations.ts')).discard },
  { name: 'log', does: 'another log level for a time', load: async () => (await import('./log.ts')).log },
  { name: 'demo', does: 'a relay over sample resources with three sample clients', load: async () => (await import('./demo.ts')).demo },
  { name: 'completion', does: 'a script that completes commands and flags in bash, zsh or fish', load: completion },
  { name: 'version', does: 'the version', load: async () => (await import('./show-version.ts')).showVersion },
];

/** It completes what is listed here. */
async function completion(): Promise<Command> {
  return (await import('./completion.ts')).completionOf(catalog);
}
