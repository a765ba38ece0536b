import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import type { Heartbeat, Interest, Put, Removal, ResourceError } from '../../src/model/transaction.ts';
import { typeInfo } from '../../src/model/types.ts';
import { encodeStatus } from '../../src/wire/responses.ts';
import {
  cluster,
  InMemoryRelay,
  namedHolder,
  put,
  type,
  when,
  wildcardHolder,
} from '../support/in-memory-relay.ts';
import { pairsOf, type ScriptedClient, ScriptedDeltaClient, ScriptedSotwClient } from './scripted-client.ts';

/**
 * Runs a conversation of clients with the relay, written as text:
 *
 *     client NAME sotw|delta [TYPE] [key=value…] [+feature…]   a stream on ADS, or on TYPE's own service; node metadata;
 *                                                    features: `ttl`, `wrapped`
 *     < NAME TYPE [names] WORD…                      a SotW request; words: `ack`, `nack` (of the type's last response,
 *                                                    or `ack n1`), `version V`, `node key=value` (sent again)
 *     < NAME TYPE +name -name WORD…                  a delta request; also `initial name` (the version last sent)
 *     NAME stops reading | reads again | leaves
 *     ? NAME TYPE                                    how the client stands to what it was sent: the type, each resource
 *     upstream TYPE vVERSION [full|named] ITEM…      a transaction: `a:1` content, `a(s):1` with a service name,
 *                                                    `a{env=prod}:1` constraints, `a:1~5s` a TTL, `~a:5s` a heartbeat,
 *                                                    `-a` removal, `!a:14` a resource error; `full`: nothing else
 *                                                    exists; `named`: not what the wildcard shows. It answers all
 *                                                    interests, unless `silent a b` says for which it does not
 *     upstream down | up
 *     wait 15s
 *
 * and answers with what the relay does: `>` is a response, `!` the end of a stream, `^` interest going upstream, `=`
 * what was asked.
 * Nonces are counted per stream: n1, n2, …
 */
class Conversation {
  readonly #lab: InMemoryRelay;
  /** The version of each resource as it was last sent: what a client that comes back says that it has. */
  readonly #versions = new Map<string, string>();
  readonly #clients = new Map<string, ScriptedClient>();
  #journal = 0;

  constructor(keys: readonly string[]) {
    this.#lab = new InMemoryRelay({
      rules: keys.map((key) => ({
        key,
        from: `node.metadata.${key}`,
        authorities: [],
        pattern: undefined,
        default: undefined,
        values: [],
        trusted: false,
      })),
    });
  }

  /** What comes of one line. */
  say(line: string): string[] {
    const [verb = '', ...words] = line.split(/\s+/);
    if (verb === 'client') this.#client(words);
    else if (verb === '<') this.#named(words[0]).request(words.slice(1));
    else if (verb === '?') return [this.#states(words)];
    else if (verb === 'upstream') this.#upstream(words);
    else if (verb === 'wait') this.#lab.clock.advance(milliseconds(words[0] ?? ''));
    else this.#named(verb).act(words.join(' '));
    this.#lab.settle();
    return [...this.#interest(), ...[...this.#clients.values()].flatMap((client) => client.heard())];
  }

  #client([name = '', protocol, ...words]: readonly string[]): void {
    const pairs = words.filter((word) => word.includes('='));
    const features = words.filter((word) => word.startsWith('+')).map((word) => featureNames[word] ?? word);
    const service = words.find((word) => /^[a-z]+$/.test(word));
    const who = { name, pairs, features, versions: this.#versions };
    this.#clients.set(
      name,
      protocol === 'delta'
        ? new ScriptedDeltaClient(who, this.#lab.delta(pathOf(service, 'deltaMethod')))
        : new ScriptedSotwClient(who, this.#lab.sotw(pathOf(service, 'streamMethod'))),
    );
  }

  #named(name = ''): ScriptedClient {
    const client = this.#clients.get(name);
    if (client === undefined) throw new Error(`no client ${name}`);
    return client;
  }

  #states([name = '', short = '']: readonly string[]): string {
    const client = this.#named(name);
    const stream = [...this.#lab.relay.server.values()].find(({ transport }) => client.uses(transport));
    const subscription = stream?.types.find(({ info }) => info.short === short)?.subscription;
    const items = [...(subscription?.holdings() ?? [])].map((one) => `${one.name}:${one.state}`);
    return `= ${name} ${short} ${[subscription?.responses.state ?? 'NOT_SENT', ...items.toSorted()].join(' ')}`;
  }

  #interest(): string[] {
    const { journal } = this.#lab.upstream;
    const news = journal.slice(this.#journal);
    this.#journal = journal.length;
    return news.map((entry) => `^ ${entry}`);
  }

  #upstream([first = '', version = '', ...words]: readonly string[]): void {
    if (first === 'down' || first === 'up') {
      this.#lab.upstream.down = first === 'down';
      this.#lab.relay.changed();
      return;
    }
    const url = type(first);
    const silentAt = words.indexOf('silent');
    const silent = silentAt < 0 ? [] : words.slice(silentAt + 1);
    const items = silentAt < 0 ? words : words.slice(0, silentAt);
    const puts: Put[] = [];
    const removals: Removal[] = [];
    const heartbeats: Heartbeat[] = [];
    const resourceErrors: ResourceError[] = [];
    for (const item of items.filter((word) => word !== 'full' && word !== 'named')) {
      const name = resourceName(item.slice(1).split(':')[0] ?? '');
      const value = item.split(':')[1] ?? '';
      if (item.startsWith('-')) removals.push({ ...variantOf(item.slice(1)) });
      else if (item.startsWith('!')) {
        const code = Number(value);
        const status = encodeStatus(code, 'upstream says so');
        resourceErrors.push({ name, constraints: UNCONSTRAINED, code, message: 'upstream says so', status });
      } else if (item.startsWith('~')) {
        heartbeats.push({ name, constraints: UNCONSTRAINED, ttlMilliseconds: milliseconds(value) });
      } else puts.push(parsePut(first, item, version.slice(1)));
    }
    const answered = ({ type: of, selector }: Interest): boolean => of === url && !silent.includes(selector);
    this.#lab.says({
      type: url,
      version: version.slice(1),
      holder: items.includes('named') ? namedHolder : wildcardHolder,
      puts,
      removals,
      heartbeats,
      resourceErrors,
      complete: items.includes('full'),
      resolved: [...this.#lab.upstream.interests].filter(answered),
    });
  }
}

const featureNames: Readonly<Record<string, string>> = {
  '+ttl': 'xds.config.supports-resource-ttl',
  '+wrapped': 'xds.config.resource-in-sotw',
};

/** Undefined for ADS. */
function pathOf(service: string | undefined, method: 'streamMethod' | 'deltaMethod'): string | undefined {
  const info = service === undefined ? undefined : typeInfo(type(service));
  return info === undefined ? undefined : `/${info.service}/${info[method]}`;
}

function variantOf(text: string): Removal {
  const [, name = '', pairs] = /^([^{]*)(?:\{(.*)\})?$/.exec(text) ?? [];
  return {
    name: resourceName(name),
    constraints: pairs === undefined ? UNCONSTRAINED : when(pairsOf(pairs.split('&'))),
  };
}

function parsePut(short: string, item: string, version: string): Put {
  const match = /^([^({:]+)(?:\(([^)]*)\))?(\{[^}]*\})?:([^~]*)(?:~(.*))?$/.exec(item);
  const [, name = '', service, constraints = '', content = '', ttl] = match ?? [];
  if (match === null) throw new Error(`cannot read the resource ${item}`);
  const made = service === undefined ? put(type(short), name, content) : cluster(name, content, service);
  return {
    ...made,
    version,
    constraints: variantOf(`${name}${constraints}`).constraints,
    ttlMilliseconds: ttl === undefined ? undefined : milliseconds(ttl),
  };
}

function milliseconds(text: string): number {
  const [, number, unit] = /^(\d+)(ms|s)$/.exec(text) ?? [];
  if (number === undefined) throw new Error(`no duration: ${text}`);
  return Number(number) * (unit === 's' ? 1000 : 1);
}

/** The conversation of a file: its lines with what the relay does put after each; as it should be, the same text. */
export function replay(script: string): string {
  const keys = /^# parameters: (.*)$/m.exec(script)?.[1]?.split(' ') ?? [];
  const conversation = new Conversation(keys);
  const lines: string[] = [];
  for (const line of script.split('\n')) {
    if (/^[>!^=]/.test(line)) continue;
    lines.push(line);
    if (line !== '' && !line.startsWith('#')) lines.push(...conversation.say(line));
  }
  return lines.join('\n');
}
