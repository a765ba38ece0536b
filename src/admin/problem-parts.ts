import { resolve } from 'node:path';
import { create } from '@bufbuild/protobuf';
import type { AdsUpstreamConfig } from '../config/config.ts';
import { type Problem, type ProblemClass, ProblemSchema } from '../gen/distributary/admin/v1/problems_pb.ts';
import { contentHash } from '../model/payloads.ts';
import { printable } from '../model/text.ts';
import { WILDCARD } from '../model/transaction.ts';
import { type Kind, parametersLabel, problemKinds } from '../observe/problems.ts';
import type { Plain } from './service.ts';

/** Names of resources that a text has at most. */
export const namesTold = 3;

type Known = Partial<Plain<Problem>> & Pick<Plain<Problem>, 'title'>;

/** `key`: what makes it the same problem the next time. */
export function problem(kind: Kind, key: readonly string[], known: Known): Plain<Problem> {
  const all = { ...nothingYet, severity: problemKinds[kind].severity, ...known };
  return {
    ...all,
    id: contentHash(JSON.stringify([kind, ...key])),
    kind,
    runbook: problemKinds[kind].runbook,
    title: printable(all.title),
    // It stands within a sentence.
    short: printable(known.short ?? all.title.charAt(0).toLowerCase() + all.title.slice(1)),
    detail: printable(all.detail),
    commands: (known.commands ?? []).filter((one) => one !== ''),
  };
}

/** Equal for what is of the same class, also where it has no id. */
export const classOfProblem = (one: Pick<Plain<ProblemClass>, 'class' | 'parameters'> | undefined): string =>
  one?.class || parametersLabel(one?.parameters ?? {});

/**
 * As many as there is room for, and nobody's are all of them: the first of each group, then the second of each, and so
 * on.
 */
export function fairShare<One>(
  sorted: readonly One[],
  groupOf: (one: One) => string,
  most: number,
): readonly One[] {
  const counts = new Map<string, number>();
  const placed = sorted.map((one) => {
    const group = groupOf(one);
    const place = counts.get(group) ?? 0;
    counts.set(group, place + 1);
    return { one, place };
  });
  return placed
    .toSorted((a, b) => a.place - b.place)
    .slice(0, most)
    .map(({ one }) => one);
}

const { $typeName: _, ...nothingYet } = create(ProblemSchema);

/** What an operator may copy into a shell: names come from peers. Empty: it cannot be typed. */
export function command(verb: string, ...words: readonly string[]): string {
  if (words.some((word) => word !== printable(word) || word.length > 300)) return '';
  return [verb, ...words.map(quoted)].join(' ');
}

/** The operator's shell is in another directory than the relay. */
export const fileCommand = (verb: string, file: string): string => command(verb, resolve(file));

/** From the relay's machine, as the relay connects: is there anything at this address, and which certificate does it show? */
export function reach(kind: string, endpoint: string, tls: AdsUpstreamConfig['tls']): string {
  if (kind === 'filesystem') return fileCommand('ls -l', endpoint);
  if (endpoint.startsWith('unix:')) return fileCommand('ls -l', endpoint.slice('unix:'.length));
  if (endpoint === '') return '';
  const { serverName, ca, identity } = tls ?? {};
  return command(
    'distributary reach',
    ...['--endpoint', endpoint],
    ...(tls === undefined ? [] : ['--tls']),
    ...(serverName === undefined ? [] : ['--server-name', serverName]),
    ...(ca === undefined ? [] : ['--ca', resolve(ca)]),
    ...(identity === undefined
      ? []
      : ['--cert', resolve(identity.certificate), '--key', resolve(identity.privateKey)]),
  );
}

function quoted(word: string): string {
  if (word === '…') return '"…"';
  return /^[\w./:@=+,%-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** `resources` takes a name and a star. */
export const globFlags = (name: string): readonly string[] =>
  name === WILDCARD ? [] : ['--name', name.slice(0, name.indexOf('*') + 1)];

export const scopeFlags = (type: string, upstream: string): readonly string[] => [
  ...(upstream === '' ? [] : ['--upstream', upstream]),
  ...(type === '' ? [] : ['--type', type]),
];

export const timestamp = (milliseconds: number): string => new Date(milliseconds).toISOString();

export function timeAfter(since: string, milliseconds: number): string {
  const at = Date.parse(since);
  return Number.isNaN(at) ? '' : timestamp(at + milliseconds);
}
