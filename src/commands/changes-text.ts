import type {
  ClientChange,
  CompareConfigurationResponse,
} from '../gen/distributary/admin/v1/configuration_pb.ts';
import { printable } from '../model/printable.ts';
import { textTable, type View } from './terminal.ts';

/** What a new configuration would change in a running relay, in paragraphs. */
export function changesText(changes: CompareConfigurationResponse, view: View): string {
  const { needsRestart, upstreams, streams, changed, losing, reconnecting, clients, noAnswer } = changes;
  const sentences = [
    `Streams: ${streams}; with other parameters: ${changed}; that lose resources: ${losing}; that may lose resources, unknown until they reconnect: ${reconnecting}.`,
    ...(noAnswer === undefined ? [] : [`Without the clients of some workers: ${noAnswer}.`]),
    ...upstreams.map(
      ({ name, change }) => `Upstream ${printable(name)}: ${upstreamWords.get(change) ?? change}.`,
    ),
    ...(needsRestart.length === 0 ? [] : [`Only after a restart: ${needsRestart.join(', ')}.`]),
  ];
  const parts = [
    sentences.join('\n'),
    sessionsText(changes, view),
    clientsText(clients, view),
    lossesText(clients, view),
  ];
  return parts.filter((part) => part !== '').join('\n\n');
}

const upstreamWords: ReadonlyMap<string, string> = new Map([
  ['ADDED', 'new'],
  ['REMOVED', 'removed'],
  ['CHANGED', 'changed, so all of its sessions are reopened'],
]);

const why: ReadonlyMap<string, string> = new Map([
  ['DENIED', 'xds.authorization does not allow it'],
  ['UNCLAIMED', 'no upstream serves it'],
  ['NO_VARIANT', 'no variant matches its new parameters'],
]);

function sessionsText({ sessions, reconnecting }: CompareConfigurationResponse, view: View): string {
  const rows = sessions
    .filter(({ before, after }) => before !== after)
    .map(({ upstream, parameters, after }) => [after ? 'opened' : 'closed', upstream, textOf(parameters)]);
  return rows.length === 0
    ? reconnecting === 0
      ? 'No session is opened or closed.'
      : 'Which sessions are opened or closed is unknown until they reconnect.'
    : textTable(['SESSION', 'UPSTREAM', 'PARAMETERS'], rows, view);
}

function clientsText(clients: readonly ClientChange[], view: View): string {
  const rows = clients.map(({ client, node, before, after, reconnects, lostTotal }) => [
    client,
    node,
    textOf(before),
    reconnects ? '(reconnects)' : textOf(after),
    reconnects ? 'unknown' : lostTotal,
  ]);
  return rows.length === 0
    ? ''
    : textTable(['CLIENT', 'NODE', 'PARAMETERS', 'NEW PARAMETERS', 'LOSES'], rows, view);
}

function lossesText(clients: readonly ClientChange[], view: View): string {
  const rows = clients.flatMap(({ client, lost }) =>
    lost.map((one) => [client, one.type, one.name, why.get(one.why) ?? one.why]),
  );
  return rows.length === 0 ? '' : textTable(['CLIENT', 'LOSES', 'NAME', 'WHY'], rows, view);
}

function textOf(parameters: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(parameters).map(([key, value]) => `${key}=${value}`);
  return pairs.length === 0 ? '(none)' : pairs.toSorted().join(', ');
}
