import { summed } from './admin/client-list.ts';
import { mergedRows } from './admin/fleet-survey.ts';
import type { ReloadPreview } from './admin/local-clients.ts';
import type { Plain } from './admin/service.ts';
import { ClientRules } from './clients.ts';
import type { Config } from './config/config.ts';
import { parseConfig } from './config/load.ts';
import { keyInCode, putAt, valueAt } from './config/schema-parts.ts';
import { type Path, problemLine } from './config/source.ts';
import type { ClientContext } from './downstream/services.ts';
import { reselect, type TypeStream } from './downstream/type-stream.ts';
import type { XdsStream } from './downstream/xds-server.ts';
import type {
  ClientChange,
  CompareConfigurationResponse,
  LostResource,
  UnreadRule,
} from './gen/distributary/admin/v1/configuration_pb.ts';
import type { ResourceName, TypeUrl } from './model/brand.ts';
import { isVariant } from './model/catalog.ts';
import { getOrMake } from './model/maps.ts';
import type { Parameters } from './model/parameters.ts';
import { counted, shorten } from './model/text.ts';
import type { Pace } from './model/time-slices.ts';
import { type Interest, idOf } from './model/transaction.ts';
import type { Relay } from './relay.ts';
import { sessionParameters } from './upstream/ads/stamp.ts';
import { claimant } from './upstream/claims.ts';
import { ASKER_GONE, invalid, rpcError } from './wire/connect.ts';

type Effect = Plain<CompareConfigurationResponse>;

/** How much the answer lists; the rest is counted. */
const mostListed = { clients: 100, lost: 20, problems: 100 };
const mostLogged = 10;

/** So many names are decided at once: files are asked for them together, and the process that reads them in one turn. */
const decidedTogether = 1000;
/** So many answers of files are remembered: clients with the same parameters ask for the same. */
const mostRemembered = 100_000;

type Compared = { readonly relay: Relay; readonly config: Config };

/** Whether there is a variant of each in the files. */
type FilesHave = (sought: readonly Interest[]) => Promise<readonly boolean[]>;

/** Files are all read: what is not cached is not there. */
const nothingElse: FilesHave = (sought) => Promise.resolve(sought.map(() => false));

/**
 * For the clients of a process. Called with the text of another configuration; the one in force is read each time.
 * `filesHave`: left out where this process reads the files.
 */
export function reloadPreview(core: Compared, filesHave = nothingElse): ReloadPreview {
  return async (text, pace, signal) => {
    // Without an environment: what the caller has written comes back in messages and answers.
    const next = parseConfig(text, 'configuration', {});
    if (next.ok) return effectOn(core, next.value, filesHave, pace, signal);
    const problems = next.error
      .slice(0, mostListed.problems)
      .map((problem) => shorten(problemLine('configuration', problem), 1000));
    const others = next.error.length - problems.length;
    throw invalid(
      [...problems, ...(others === 0 ? [] : [`and ${counted(others, 'more problem')}`])].join('\n'),
    );
  };
}

/** A client, until it is known what it loses. */
interface Undecided {
  readonly change: Plain<ClientChange>;
  /** Its parameters change, for some name. */
  readonly moved: boolean;
  /** `why`: an interest: only if no file has a variant for it. */
  readonly maybeLost: {
    readonly type: string;
    readonly name: string;
    readonly why: string | Interest;
  }[];
}

/** What a reload would change for the clients of this process (ADR 123): all but needsRestart and upstreams. */
async function effectOn(
  { relay, config: before }: Compared,
  after: Config,
  filesHave: FilesHave,
  pace: Pace,
  signal: AbortSignal,
): Promise<Effect> {
  const rules = new ClientRules(after);
  const hasSameClaims = JSON.stringify(claimsOf(before)) === JSON.stringify(claimsOf(after));
  const sessions = new Map<string, Effect['sessions'][number]>();
  const clients: Plain<ClientChange>[] = [];
  let unreadRules: Plain<UnreadRule>[] = [];
  const counts = { streams: 0, changed: 0, losing: 0, reconnecting: 0 };
  /** What files were asked, by `idOf`. */
  const inFiles = new Map<string, boolean>();
  let undecided: Undecided[] = [];
  /** Clients and names. */
  let undecidedCount = 0;
  for (const stream of [...relay.server.values()]) {
    await pace.yieldIfDue();
    whileAsked();
    if (stream.client !== undefined) await add(stream, stream.client);
  }
  await decide();
  return {
    needsRestart: [],
    upstreams: [],
    sessions: [...sessions.values()],
    ...counts,
    clients,
    unreadRules,
  };

  function whileAsked(): void {
    if (signal.aborted) throw rpcError(ASKER_GONE);
  }

  async function add(stream: XdsStream, client: ClientContext): Promise<void> {
    counts.streams++;
    const next = rules.reapplyRules(client, stream.transport.peer);
    const unread = rules.unread(client).map(({ key, from }) => ({ key, from, streams: 1 }));
    unreadRules = mergedRules([...unreadRules, ...unread]);
    const parameters = client.derived(undefined);
    const change: Plain<ClientChange> = {
      client: stream.id,
      node: client.nodeId,
      before: Object.fromEntries(parameters.entries),
      after: Object.fromEntries(next?.derived(undefined).entries ?? []),
      reconnects: next === undefined,
      lost: [],
      lostTotal: 0,
    };
    const maybeLost: Undecided['maybeLost'] = [];
    let moved = next !== undefined && next.derived(undefined) !== parameters;
    for (const type of stream.types) {
      const parametersNow = await sessionsOf(type, next);
      moved ||= [...parametersNow].some(([from, to]) => from !== to);
      if (next !== undefined && (moved || !hasSameClaims || client.access.key !== next.access.key))
        await lossesOf(type, next, parametersNow, maybeLost);
    }
    undecided.push({ change, moved, maybeLost });
    undecidedCount += 1 + maybeLost.length;
    if (undecidedCount > decidedTogether) await decide();
  }

  /** Notes the sessions that a type's names need before and after. Returns the parameters after by those before. */
  async function sessionsOf(
    { info, selection }: TypeStream,
    next: ClientContext | undefined,
  ): Promise<ReadonlyMap<Parameters, Parameters>> {
    const parametersNow = new Map<Parameters, Parameters>();
    for (const entry of selection.entries.values()) {
      await pace.yieldIfDue();
      session('before', info.url, entry.selector, entry.parameters);
      const { parameters } = next === undefined ? entry : reselect(entry, next);
      session('after', info.url, entry.selector, parameters);
      parametersNow.set(entry.parameters, parameters);
    }
    return parametersNow;
  }

  function session(when: 'before' | 'after', type: TypeUrl, selector: string, of: Parameters): void {
    const config = when === 'before' ? before : after;
    const upstream = claimant(config.upstreams, type, selector);
    if (upstream?.kind !== 'ads') return;
    const parameters = sessionParameters(upstream.variants, config.parameters, of);
    const key = JSON.stringify([upstream.name, parameters.key]);
    const shown = Object.fromEntries(parameters.entries);
    const none = { upstream: upstream.name, parameters: shown, before: false, after: false };
    getOrMake(sessions, key, () => none)[when] = true;
  }

  async function lossesOf(
    { info, subscription }: TypeStream,
    next: ClientContext,
    parametersNow: ReadonlyMap<Parameters, Parameters>,
    maybeLost: Undecided['maybeLost'],
  ): Promise<void> {
    for (const { name, canonical, parameters, value } of subscription?.holdings() ?? []) {
      await pace.yieldIfDue();
      if (!isVariant(value)) continue;
      const now = parametersNow.get(parameters) ?? parameters;
      const why = whyLost(info.url, canonical, next, parameters, now);
      if (why !== undefined) maybeLost.push({ type: info.short, name, why });
    }
  }

  /** What the clients that were looked at lose. */
  async function decide(): Promise<void> {
    const decided = undecided;
    undecided = [];
    undecidedCount = 0;
    await askFiles(decided);
    for (const { change, moved, maybeLost } of decided) {
      for (const { type, name, why } of maybeLost) {
        await pace.yieldIfDue();
        if (typeof why !== 'string' && inFiles.get(idOf(why)) === true) continue;
        change.lostTotal++;
        const lost: Plain<LostResource> = { type, name, why: typeof why === 'string' ? why : 'NO_VARIANT' };
        if (change.lost.length < mostListed.lost) change.lost.push(lost);
      }
      counts.changed += Number(moved);
      counts.losing += Number(change.lostTotal > 0);
      counts.reconnecting += Number(change.reconnects);
      const isWorthListing = moved || change.reconnects || change.lostTotal > 0;
      if (isWorthListing && clients.length < mostListed.clients) clients.push(change);
    }
  }

  /** For each name once, whoever asks for it. */
  async function askFiles(of: readonly Undecided[]): Promise<void> {
    if (inFiles.size > mostRemembered) inFiles.clear();
    const unknown = new Map<string, Interest>();
    for (const { why } of of.flatMap(({ maybeLost }) => maybeLost)) {
      await pace.yieldIfDue();
      if (typeof why === 'string') continue;
      const id = idOf(why);
      if (!inFiles.has(id)) unknown.set(id, why);
    }
    const sought = [...unknown];
    for (let at = 0; at < sought.length; at += decidedTogether) {
      whileAsked();
      const part = sought.slice(at, at + decidedTogether);
      const found = await filesHave(part.map(([, interest]) => interest));
      for (const [index, [id]] of part.entries()) inFiles.set(id, found[index] === true);
    }
  }

  /** Undefined: it keeps the resource, gets another variant, or what a session answers decides. An interest: files do. */
  function whyLost(
    type: TypeUrl,
    name: ResourceName,
    { access }: ClientContext,
    was: Parameters,
    now: Parameters,
  ): string | Interest | undefined {
    const upstream = claimant(after.upstreams, type, name);
    if (upstream === undefined) return 'UNCLAIMED';
    if (!access.allows(type, name)) return 'DENIED';
    const value = relay.store.peek(type, name, now);
    if (isVariant(value)) return access.admits(value, now) ? undefined : 'DENIED';
    if (was.key === now.key) return undefined;
    if (value === 'absent') return 'NO_VARIANT';
    return upstream.kind === 'filesystem' ? { type, selector: name, parameters: now } : undefined;
  }
}

const noEffect: Effect = {
  ...{ needsRestart: [], upstreams: [], sessions: [], clients: [], unreadRules: [] },
  ...{ streams: 0, changed: 0, losing: 0, reconnecting: 0 },
};

/** The effects on several processes as one. */
export function mergeEffects(effects: readonly Effect[]): Effect {
  const sessions = mergedRows(
    effects.flatMap((one) => one.sessions),
    ({ upstream, parameters }) =>
      JSON.stringify([upstream, Object.entries(parameters).toSorted(([a], [b]) => (a < b ? -1 : 1))]),
    (one, other) => ({
      ...one,
      before: one.before || other.before,
      after: one.after || other.after,
    }),
  );
  return {
    ...effects.reduce(summed('streams', 'changed', 'losing', 'reconnecting'), noEffect),
    sessions,
    clients: effects.flatMap(({ clients }) => clients).slice(0, mostListed.clients),
    unreadRules: mergedRules(effects.flatMap(({ unreadRules }) => unreadRules)),
  };
}

/** The rules that need what was not kept of nodes, each with the streams of these. */
const mergedRules = (rules: readonly Plain<UnreadRule>[]): Plain<UnreadRule>[] =>
  mergedRows(
    rules,
    ({ key, from }) => JSON.stringify([key, from]),
    (one, other) => ({ ...one, streams: one.streams + other.streams }),
  );

const claimsOf = ({ upstreams }: Config): readonly unknown[] =>
  upstreams.map((one) => [one.name, one.claims]);

/** For one line of the log. While streams must reconnect, a count of 0 says nothing of them, and is left out. */
export function effectSummary(effect: Effect) {
  const { upstreams, sessions, streams, changed, losing, reconnecting, clients, unreadRules } = effect;
  const known = (count: number): number | undefined => (count === 0 && reconnecting > 0 ? undefined : count);
  const lost = clients
    .flatMap(({ node, lost }) =>
      lost.map(({ type, name, why }) => shorten(`${node}: ${type} ${name} ${why}`, 300)),
    )
    .slice(0, mostLogged);
  return {
    upstreams: Object.fromEntries(upstreams.map(({ name, change }) => [name, change])),
    sessions_opened: known(sessions.filter(({ before, after }) => after && !before).length),
    sessions_closed: known(sessions.filter(({ before, after }) => before && !after).length),
    streams,
    streams_changed: known(changed),
    streams_losing: known(losing),
    streams_reconnecting: reconnecting,
    lost: known(lost.length) === undefined ? undefined : lost,
    unread_rules:
      unreadRules.length === 0
        ? undefined
        : unreadRules
            .map(({ key, from, streams: of }) =>
              shorten(`${key} reads ${from}: ${counted(of, 'stream')}`, 300),
            )
            .slice(0, mostLogged),
  };
}

/** The keys of the configuration that only a restart can change. */
// biome-ignore format: a list
export const fixedKeys: readonly string[] = [
  'node', 'xds.address', 'xds.unix_mode', 'xds.tls', 'rest', 'admin.address', 'admin.tls', 'metrics', 'tracing',
  'watchdog', 'workers', 'limits.max_request_bytes', 'limits.max_poll_bytes', 'cache.idle_ttl', 'cache.persistence',
];

/** In the file, and in the program. */
const fixed = fixedKeys.map((key) => ({ key, path: key.split('.'), own: key.split('.').map(keyInCode) }));

/** Those that differ from what the process was started with. */
export function needsRestart(started: Config, now: Config): string[] {
  const text = (config: Config, own: Path): string | undefined => JSON.stringify(valueAt(config, own));
  const named = fixed.filter(({ own }) => text(started, own) !== text(now, own)).map(({ key }) => key);
  return rolloutInForce(started, now) === now.rollout ? named : [...named, 'rollout'];
}

/** With workers only a restart brings a rollout or ends it: each worker has a feed for each cohort then (docs/adr/0130). */
function rolloutInForce(started: Config, now: Config): Config['rollout'] {
  const isFixed = started.workers > 0 && (started.rollout === undefined) !== (now.rollout === undefined);
  return isFixed ? started.rollout : now.rollout;
}

/** The configuration in force: the new one, but for what needs a restart. */
export function inForce(started: Config, now: Config): Config {
  const { xds, admin, limits, cache } = now;
  const copied = { xds: { ...xds }, admin: { ...admin }, limits: { ...limits }, cache: { ...cache } };
  const config = { ...now, ...copied, rollout: rolloutInForce(started, now) };
  for (const { own } of fixed) putAt(config, own, valueAt(started, own));
  return config;
}

/** What is in force (`now`), as /config_dump shows it: the newest version, with the rest as it was at the start. */
export function dumpInForce(started: Config, now: Config): unknown {
  const paths = fixed.map(({ path }) => path);
  if (now.rollout === started.rollout) paths.push(['rollout']);
  const dump = structuredClone(now.source.dump);
  for (const path of paths) putAt(dump, path, valueAt(started.source.dump, path));
  return dump;
}
