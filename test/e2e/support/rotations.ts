import { type ChannelCredentials, credentials } from '@grpc/grpc-js';
import { Code } from '../../../src/wire/grpc-status.ts';
import { type Issued, issueCertificate } from '../../support/certificates.ts';
import { eventually } from './eventually.ts';
import { ResourceFiles } from './files.ts';
import { PemFiles } from './pem-files.ts';
import { RelayProcess } from './relay.ts';
import { XdsClient } from './xds-client.ts';

export interface RotationsOptions {
  readonly rotations: number;
  readonly streams: number;
  /** 0: one process. */
  readonly workers?: number;
}

export interface Rotated {
  /** Streams that ended and should not have, or the other way round, and attempts to connect that failed. */
  readonly problems: readonly string[];
  /** New connections that were made meanwhile, one after the other. */
  readonly probes: number;
  /** The longest of them, in milliseconds. */
  readonly slowestProbe: number;
  /** Streams that ended with their authority. */
  readonly ended: number;
  /** Updates that every stream got in time, of those that were made. */
  readonly updates: number;
}

/** What is replaced in turn. A key comes with a certificate for it. */
const kinds = ['leaf', 'authority of clients', 'key', 'authority of the relay'] as const;
type Kind = (typeof kinds)[number];

/** Clients have one of so many authorities: with each that goes, a tenth of the streams ends. */
const groupCount = 10;
const RELOADED = 'certificate reloaded';
const REFUSED = 'a new certificate is refused';

interface Group {
  readonly authority: Issued;
  readonly own: Issued;
  readonly clients: XdsClient[];
}

/**
 * A relay with mutual TLS under load: resources change and new clients come all the time, while certificates, keys and
 * authorities are replaced, and files are found half written.
 */
export async function rotateCertificates(options: RotationsOptions): Promise<Rotated> {
  await using rotations = await Rotations.start(options);
  for (let turn = 0; turn < options.rotations; turn++) {
    await rotations.rotate(kinds[turn % kinds.length] ?? 'leaf', turn);
  }
  return await rotations.finish();
}

class Rotations implements AsyncDisposable {
  readonly #relay: RelayProcess;
  readonly #pem: PemFiles;
  readonly #resources: ResourceFiles;
  readonly #processes: number;
  readonly #perGroup: number;
  readonly #problems: string[] = [];
  readonly #load: Promise<unknown>;
  /** The oldest first. */
  readonly #groups: Group[] = [];
  #serverAuthorities: readonly Issued[];
  #server: Issued;
  #made = 0;
  #ended = 0;
  #updates = 0;
  #probes = 0;
  #slowest = 0;
  #over = false;

  private constructor(
    relay: RelayProcess,
    files: { readonly pem: PemFiles; readonly resources: ResourceFiles },
    first: { readonly authority: Issued; readonly server: Issued; readonly groups: readonly Group[] },
    { streams, workers = 0 }: RotationsOptions,
  ) {
    this.#relay = relay;
    this.#pem = files.pem;
    this.#resources = files.resources;
    this.#processes = Math.max(1, workers);
    this.#perGroup = Math.ceil(streams / groupCount);
    this.#serverAuthorities = [first.authority];
    this.#server = first.server;
    this.#groups.push(...first.groups);
    this.#made = first.groups.length;
    this.#load = Promise.all([this.#probe(), this.#update()]);
  }

  static async start(options: RotationsOptions): Promise<Rotations> {
    const pem = new PemFiles();
    const resources = new ResourceFiles();
    resources.write('cds', new Map([['shop', 'update-0;']]));
    const authority = issueCertificate({ name: 'authority of the relay', authority: true });
    const server = issueServer(authority);
    const groups = Array.from({ length: groupCount }, (_, index) => newGroup(index));
    const ca = pem.bundle(
      'ca.crt',
      groups.map((group) => group.authority),
    );
    const relay = await RelayProcess.start({
      upstreams: [resources.upstream],
      xds: { tls: { ...pem.identity('server', server), ca, require_client_certificate: true } },
      workers: options.workers ?? 0,
      drain_timeout: '1s',
    });
    const made = new Rotations(relay, { pem, resources }, { authority, server, groups }, options);
    await Promise.all(made.#groups.map((group) => made.#connect(group)));
    return made;
  }

  async rotate(kind: Kind, turn: number): Promise<void> {
    switch (kind) {
      case 'leaf':
        await this.#replaceServer(issueServer(this.#authority, this.#server));
        break;
      case 'key':
        await this.#replaceServer(issueServer(this.#authority), true);
        break;
      case 'authority of the relay': {
        const next = issueCertificate({ name: `authority of the relay ${turn}`, authority: true });
        // Clients trust both for a while.
        this.#serverAuthorities = [...this.#serverAuthorities, next].slice(-2);
        await this.#replaceServer(issueServer(next), true);
        break;
      }
      case 'authority of clients':
        await this.#replaceClients();
        break;
      default:
        kind satisfies never;
    }
    for (const group of this.#groups) {
      for (const { status } of group.clients) {
        if (status !== undefined)
          this.#problems.push(`turn ${turn} (${kind}): a stream ended: ${status.code} ${status.details}`);
      }
    }
  }

  /** The load ends; what it found. */
  async finish(): Promise<Rotated> {
    this.#over = true;
    await this.#load;
    return {
      problems: this.#problems,
      probes: this.#probes,
      slowestProbe: Math.round(this.#slowest),
      ended: this.#ended,
      updates: this.#updates,
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over = true;
    await this.#load;
    await Promise.all(
      this.#groups.flatMap(({ clients }) => clients).map((client) => client[Symbol.asyncDispose]()),
    );
    await this.#relay.stop();
    this.#pem[Symbol.dispose]();
    this.#resources[Symbol.dispose]();
  }

  get #authority(): Issued {
    const last = this.#serverAuthorities.at(-1);
    if (last === undefined) throw new Error('the relay has no authority');
    return last;
  }

  /** `slowly`: for a while the key is there and its certificate is not, and then half of that. */
  async #replaceServer(server: Issued, slowly = false): Promise<void> {
    this.#server = server;
    const writeKey = (): void => void this.#pem.write('server.key', server.privateKey);
    const half = server.certificate.slice(0, server.certificate.length / 2);
    if (slowly) {
      await this.#noticed([REFUSED], writeKey);
      await this.#noticed([REFUSED], () => this.#pem.overwrite('server.crt', half));
    } else writeKey();
    await this.#noticed([RELOADED], () => this.#pem.overwrite('server.crt', server.certificate));
  }

  /** A new authority comes first, then the oldest goes, and with it its clients, who come again with the new one. */
  async #replaceClients(): Promise<void> {
    const next = newGroup(this.#made++);
    const old = this.#groups[0];
    if (old === undefined) throw new Error('there are no clients');
    await this.#replaceAuthorities([...this.#groups, next]);
    await this.#connect(next);
    this.#groups.shift();
    this.#groups.push(next);
    await this.#replaceAuthorities(this.#groups);
    for (const client of old.clients) {
      const { code, details } = await client.ends();
      this.#ended++;
      if (code !== Code.UNAVAILABLE || !details.includes('authority'))
        this.#problems.push(`a stream whose authority went ended with ${code} ${details}`);
      await client[Symbol.asyncDispose]();
    }
  }

  async #replaceAuthorities(groups: readonly Group[]): Promise<void> {
    const bundle = groups.map(({ authority }) => authority.certificate).join('');
    const part = bundle.slice(0, bundle.length / 3);
    // It may end where a certificate does.
    await this.#noticed([REFUSED, RELOADED], () => this.#pem.overwrite('ca.crt', part));
    await this.#noticed([RELOADED], () => this.#pem.overwrite('ca.crt', bundle));
  }

  /** Waits until each process has said one of these of what `write` wrote. */
  async #noticed(messages: readonly string[], write: () => void): Promise<void> {
    const count = (): number => this.#relay.log.filter(({ message }) => messages.includes(message)).length;
    const expected = count() + this.#processes;
    write();
    await eventually(() => {
      if (count() < expected)
        throw new Error(`${count()} of ${expected} times ${messages.join(' or ')}:\n${this.#relay.output}`);
    });
  }

  async #connect(group: Group): Promise<void> {
    const made = Array.from({ length: this.#perGroup }, () => this.#client(group.own));
    group.clients.push(...made);
    for (const client of made) client.subscribe('cds', ['*']);
    await Promise.all(made.map((client) => client.gets('cds')));
  }

  #client(own: Issued): XdsClient {
    return new XdsClient(this.#relay.xds, 'delta', {
      secure: this.#secure(own),
      serverName: 'relay.test',
    });
  }

  #secure(own: Issued): ChannelCredentials {
    const roots = this.#serverAuthorities.map(({ certificate }) => certificate).join('');
    return credentials.createSsl(
      Buffer.from(roots),
      Buffer.from(own.privateKey),
      Buffer.from(own.certificate),
    );
  }

  /** New connections, one after the other: never a moment in which nobody can connect. */
  async #probe(): Promise<void> {
    while (!this.#over) {
      const own = this.#groups.at(-1)?.own;
      if (own === undefined) throw new Error('there are no clients');
      const since = performance.now();
      await using client = this.#client(own);
      client.subscribe('cds', ['*']);
      try {
        await client.gets('cds');
      } catch (error) {
        this.#problems.push(`a new client could not connect: ${String(error)}`);
      }
      this.#probes++;
      this.#slowest = Math.max(this.#slowest, performance.now() - since);
    }
  }

  /** A change, and the next when all who stay have it. */
  async #update(): Promise<void> {
    while (!this.#over) {
      const content = `update-${++this.#updates};`;
      this.#resources.write('cds', new Map([['shop', content]]));
      try {
        await eventually(() => {
          for (const { clients } of this.#groups) {
            for (const client of clients) {
              const { received, status } = client;
              const has = received.at(-1)?.first.some((bytes) => bytes.includes(content)) === true;
              if (!has && status === undefined) throw new Error('a stream lacks it');
            }
          }
        });
      } catch (error) {
        this.#problems.push(`${content} ${String(error)}`);
      }
    }
  }
}

function issueServer(issuer: Issued, key?: Issued): Issued {
  return issueCertificate({
    name: 'relay',
    issuer,
    dns: ['relay.test'],
    ...(key === undefined ? {} : { key }),
  });
}

function newGroup(index: number): Group {
  const authority = issueCertificate({ name: `authority of clients ${index}`, authority: true });
  const own = issueCertificate({
    name: 'client',
    issuer: authority,
    uris: [`spiffe://example.com/${index}`],
  });
  return { authority, own, clients: [] };
}
