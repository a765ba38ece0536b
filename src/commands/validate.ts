import { resourceDirectories } from '../config/check-files.ts';
import type { Config } from '../config/config.ts';
import type { Environment } from '../config/document.ts';
import { withDefaults } from '../config/json-schema.ts';
import { examineConfig, readConfigText, unreadable, withoutReferences } from '../config/load.ts';
import { read } from '../config/schema-parts.ts';
import { type ConfigProblem, problemLine } from '../config/source.ts';
import { contradictions, dangers, hints, unreadFields } from '../config/warnings.ts';
import {
  type ClientChange,
  type CompareConfigurationResponse,
  type LostResource,
} from '../gen/distributary/admin/v1/configuration_pb.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { systemClock } from '../model/clock.ts';
import { counted, printable } from '../model/text.ts';
import { notAllowed, parametersLabel } from '../observe/problems.ts';
import { textTable, type View } from '../observe/text-table.ts';
import { askCheck } from '../releases/checks.ts';
import { claims } from '../upstream/claims.ts';
import { checkResourceFiles } from '../upstream/filesystem/filesystem-upstream.ts';
import { formatProblem } from '../upstream/filesystem/resource-file.ts';
import { defineCommand, file, required, text, UsageError } from './command.ts';
import { certificateFlags, flagNames } from './context.ts';
import { dataText, outputFlags, outputOf } from './output.ts';
import { type AdminClient, messageJson, relayClient, withRelay } from './relay-command.ts';
import { viewOf } from './terminal.ts';

export const validate = defineCommand({
  name: 'validate',
  does: 'checks a configuration without running it',
  about: `Checks a configuration and the files it names, resources too, without running it. It refuses what a relay would only warn
about: resource files that it would leave out, rules that match no client, an upstream that is this relay itself or is never used,
a bake longer than max_wait, a cache.persistence.path that cannot be written, and
certificates that have expired.

Prints every problem as FILE:LINE:COLUMN: path: message. What is dangerous but may be intended is printed as
FILE:LINE:COLUMN: warning: path: message. A hint says what a control plane will see.

-o json and yaml are on stdout: {file, ok, problems[], warnings[], hints[]}, each with file, line, column, path and message,
and with --against also changes.`,
  usage: '--config FILE [--against URL [--cert F --key F] [--ca F]]',
  flags: {
    config: required(file('FILE', 'the configuration, YAML or JSON')),
    against: text(
      'URL',
      'also what it would change in the relay with this admin listener: sessions opened and closed, clients that get other parameters, resources that they would lose, clients of which that is unknown until they reconnect. Each of rollout.checks is asked once',
    ),
    ...certificateFlags,
    ...outputFlags,
  },
  exit: '0 if it is valid, even with warnings; 2 if it is not; 1 if the relay of --against does not answer.',
  run: async ({ config: file, against, output, json, ...flags }, { terminal }) => {
    const format = outputOf({ output, json });
    if (format instanceof UsageError) return format;
    const names = { ...flagNames, admin: '--against' };
    const client =
      against === '' ? undefined : relayClient({ ...flags, admin: against }, terminal.environment, names);
    if (client?.ok === false) return new UsageError(client.error);
    const { config, ...found } = await check(file, terminal.environment);
    const isForPeople = format === undefined || format === 'wide';
    if (isForPeople) {
      // All at once: who mends a problem should not find the next one behind it.
      for (const { line } of kinds.flatMap((kind) => found[kind])) terminal.err(`${printable(line)}\n`);
      if (config === undefined) terminal.err(`${file}: ${counted(found.problems.length, 'problem')}\n`);
      else terminal.out(`${file}: ok\n${summary(config)}\n`);
    }
    let report: object = reportOf(file, found);
    const compare = async (asked: Config, { rpc }: AdminClient): Promise<0> => {
      const text = withoutReferences(asked.source.text, terminal.environment);
      const changes = await rpc.compareConfiguration({ text });
      const unread = unreadFields(asked, changes.unreadRules).map(foundIn(file, 'warning'));
      const said = await askChecks(asked);
      report = {
        ...reportOf(file, { ...found, warnings: [...found.warnings, ...unread] }),
        changes: messageJson(changes),
        ...(said.length === 0 ? {} : { checks: said }),
      };
      if (!isForPeople) return 0;
      for (const { line } of unread) terminal.err(`${printable(line)}\n`);
      terminal.out(`\n${changesText(changes, viewOf(terminal, format === 'wide'))}\n`);
      for (const { name, state, reason } of said)
        terminal.out(printable(`check ${name}: ${state}: ${reason}`).concat('\n'));
      return 0;
    };
    const code =
      config === undefined || client === undefined
        ? Number(config === undefined) * 2
        : await withRelay(client, terminal, (relay) => compare(config, relay));
    if (!isForPeople) terminal.out(`${dataText(report, format, 2)}\n`);
    return code;
  },
});

/** For people, and for -o json and yaml: without what the format of the file does not have. */
interface Found {
  /** FILE:LINE:COLUMN: path: message. */
  readonly line: string;
  /** The file, where in it, and the message. */
  readonly at: object;
}

/** In the order in which they are printed. */
const kinds = ['problems', 'warnings', 'hints'] as const;
type Report = Readonly<Record<(typeof kinds)[number], readonly Found[]>>;

/** `config` undefined: it is not good. */
async function check(
  file: string,
  environment: Environment,
): Promise<Report & { readonly config: Config | undefined }> {
  const text = readConfigText(file);
  const { config, value, ...found } = text.ok
    ? examineConfig(text.value, file, environment, systemClock.now())
    : { problems: [unreadable(text.error)], config: undefined, value: undefined };
  const problems = [...found.problems.map(foundIn(file)), ...(await resourceProblems(value, config))];
  const warned = config === undefined ? [] : [...dangers(config), ...contradictions(config)];
  const hinted = config === undefined ? [] : hints(config);
  return {
    config: problems.length === 0 ? config : undefined,
    problems,
    warnings: warned.map(foundIn(file, 'warning')),
    hints: hinted.map(foundIn(file, 'hint')),
  };
}

/** Each once, all at the same time. A webhook is told that this is a trial. */
function askChecks({ rollout }: Config) {
  return Promise.all(
    (rollout?.checks ?? []).map(async (settings) => {
      const subject = (): object => ({ state: 'VALIDATE' });
      const { state, value, reason } = await askCheck(settings, {
        clock: systemClock,
        subject,
        isUnref: false,
      });
      return { name: settings.name, state, value, reason };
    }),
  );
}

function reportOf(file: string, report: Report): object {
  const lists = kinds.map((kind) => [kind, report[kind].map(({ at }) => at)] as const);
  return { file, ok: report.problems.length === 0, ...Object.fromEntries(lists) };
}

const foundIn =
  (file: string, mark?: 'warning' | 'hint') =>
  (problem: ConfigProblem): Found => {
    const { line, column, path, message } = problem;
    return { line: problemLine(file, problem, mark), at: { file, line, column, path, message } };
  };

/** Of the files of filesystem upstreams, whatever else is wrong. `run` goes on without them, and says so. */
async function resourceProblems(value: unknown, config: Config | undefined): Promise<readonly Found[]> {
  const found: Found[] = [];
  const depth = Number(read(read(withDefaults(value), 'limits'), 'max_constraint_depth'));
  for (const directory of resourceDirectories(value)) {
    const own = config?.upstreams.filter((one) => one.kind === 'filesystem' && one.path === directory);
    const isClaimed = (type: TypeUrl, name: ResourceName): boolean =>
      own === undefined || own.some((one) => claims(one.claims, type, name));
    for (const problem of await checkResourceFiles(directory, depth, isClaimed)) {
      const { file, place, message } = problem;
      const at = { file, line: place?.line, column: place?.column, message };
      found.push({ line: formatProblem(problem), at });
    }
  }
  return found;
}

function summary(config: Config): string {
  const upstreams = config.upstreams.map(({ name, kind }) => `${name} (${kind})`).join(', ');
  const rules = config.parameters.length;
  return `upstreams: ${upstreams}; parameter rules: ${rules}; authorization rules: ${config.xds.authorization.length}`;
}

/** What a new configuration would change in a running relay, in paragraphs. */
function changesText(changes: CompareConfigurationResponse, view: View): string {
  const { needsRestart, upstreams, streams, changed, losing, reconnecting, clients, noAnswer } = changes;
  const sentences = [
    `Streams: ${streams}; with other parameters: ${changed}; that lose resources: ${losing}; that may lose resources, unknown until they reconnect: ${reconnecting}.`,
    ...(noAnswer === undefined ? [] : [`Incomplete: ${noAnswer}.`]),
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
  ['CHANGED', 'made anew: its sessions are opened again, or its files read again'],
]);

const why: ReadonlyMap<string, string> = new Map([
  ['DENIED', notAllowed],
  ['UNCLAIMED', 'no upstream serves it'],
  ['NO_VARIANT', 'no variant matches its new parameters'],
]);

const noParameters = '(none)';

function sessionsText({ sessions, reconnecting }: CompareConfigurationResponse, view: View): string {
  const moved = sessions.filter(({ before, after }) => before !== after);
  if (moved.length === 0)
    return reconnecting === 0
      ? 'No session is opened or closed.'
      : 'Which sessions are opened or closed is unknown until they reconnect.';
  return textTable(
    moved,
    [
      ['SESSION', ({ after }) => (after ? 'opened' : 'closed')],
      'upstream',
      ['PARAMETERS', ({ parameters }) => parametersLabel(parameters, noParameters)],
    ],
    view,
  );
}

function clientsText(clients: readonly ClientChange[], view: View): string {
  if (clients.length === 0) return '';
  return textTable(
    clients,
    [
      'client',
      'node',
      ['PARAMETERS', ({ before }) => parametersLabel(before, noParameters)],
      [
        'NEW PARAMETERS',
        ({ reconnects, after }) => (reconnects ? '(reconnects)' : parametersLabel(after, noParameters)),
      ],
      ['LOSES', ({ reconnects, lostTotal }) => (reconnects ? 'unknown' : lostTotal)],
    ],
    view,
  );
}

function lossesText(clients: readonly ClientChange[], view: View): string {
  const rows = clients.flatMap(({ client, lost }) => lost.map((one) => Object.assign(one, { client })));
  const said = (one: LostResource): string => why.get(one.why) ?? one.why;
  return rows.length === 0 ? '' : textTable(rows, ['client', ['LOSES', 'type'], 'name', ['WHY', said]], view);
}
