import * as z from 'zod';
import { fail, ok } from '../model/result.ts';
import { formatHostPort } from '../wire/address.ts';
import {
  checkHost,
  duration,
  evenIfWrong,
  inCode,
  listenAddress,
  listenAnywhere,
  name,
  parsed,
  positiveDuration,
  principal,
  read,
  readText,
  resourceNames,
  resourceType,
} from './schema-parts.ts';

// biome-ignore format: a table, one key a line
const serverTls = z
  .strictObject({
    certificate: name().optional().describe('PEM file of the certificate chain'),
    private_key: name().optional().describe('PEM file of its key'),
    ca: name().optional().describe('PEM file of the authorities that client certificates are verified against'),
    require_client_certificate: z.boolean().default(false).describe('Refuse clients without a certificate (mutual TLS)'),
  });

// biome-ignore format: a table, one key a line
const clientTls = serverTls.extend({
    session_tickets: z.boolean().default(true).describe('Whether clients can resume TLS sessions, also in another worker, after a new certificate and, with cache.persistence, after a restart'),
    session_ticket_secret_file: name().optional().describe('File with a secret of 32 bytes or more, the same for all replicas: a client can then resume its TLS session at each of them. Left out: the keys of tickets are random'),
});

function checkServerTls(tls: unknown, context: z.core.$RefinementCtx): void {
  const set = (key: string): boolean => read(tls, key) !== undefined;
  const required = read(tls, 'require_client_certificate') === true;
  const secret = 'session_ticket_secret_file';
  const used = set('certificate') || set('private_key') || set('ca') || required || set(secret);
  const missing = ['certificate', 'private_key'].filter((key) => !set(key));
  if (used && missing.length > 0) {
    context.addIssue(
      `certificate and private_key belong together: ${missing.join(' and ')} ${missing.length === 1 ? 'is' : 'are'} missing`,
    );
  }
  if (required && !set('ca')) {
    const message = 'needs ca: the authorities that client certificates are verified against';
    context.addIssue({ code: 'custom', path: ['require_client_certificate'], message });
  }
  if (set(secret) && read(tls, 'session_tickets') === false) {
    const message = 'needs session_tickets: true';
    context.addIssue({ code: 'custom', path: [secret], message });
  }
}

/** Undefined: plaintext. */
function filesOf<T extends z.output<typeof serverTls>>(tls: T) {
  const { certificate, private_key: privateKey } = tls;
  if (certificate === undefined || privateKey === undefined) return undefined;
  return { ...inCode(tls), certificate, privateKey };
}

function clientFilesOf({ session_ticket_secret_file: ticketSecret, ...tls }: z.output<typeof clientTls>) {
  const files = filesOf(tls);
  return files && { ...files, ticketSecret };
}

const tls = () =>
  clientTls
    .superRefine(checkServerTls, evenIfWrong)
    .transform(clientFilesOf)
    .prefault({})
    .describe('TLS; left out or {}: plaintext. The files are watched and reloaded');

// biome-ignore format: a table, one key a line
const rule = z.strictObject({
  principals: z.array(principal()).min(1).optional().describe('SANs of client certificates: a URI, or dns:NAME; * is a wildcard. Left out: everyone'),
  types: z.array(resourceType()).min(1).optional().describe('Short names (cds) or type URLs. Left out: every type'),
  names: z.array(resourceNames()).min(1).optional().describe('Resource names and aliases; a trailing * makes a prefix. xdstp names mean the same in any spelling. Left out: every name'),
  allow: z.boolean().describe('Whether what this rule matches may be read'),
});

// biome-ignore format: a table, one key a line
const authorization = z
  .strictObject({
    rules: z.array(rule).prefault([]).describe('The first match wins; once there is a rule, what no rule matches is denied'),
  })
  .transform(({ rules }) => rules);

// biome-ignore format: a table, one key a line
const clientStatus = z.strictObject({
  enabled: z.boolean().default(true).describe('Whether CSDS is served on this port; the admin listener always serves it'),
  principals: z.array(principal()).prefault([]).describe('SANs of client certificates. Clients with one of them see all clients, and what the relay itself has, whatever the rules say. Others see their own streams'),
});

const modePattern = '^0[0-7]{3}$';
const fileMode = () =>
  parsed(
    (text) =>
      new RegExp(modePattern).test(text)
        ? ok(Number.parseInt(text, 8))
        : fail(`${JSON.stringify(text)} is not a mode: use four octal digits, as in "0666"`),
    { pattern: modePattern },
  );

/** Of `xds`. */
export const defaultAddress = '0.0.0.0:18000';

// biome-ignore format: a table, one key a line
export const xds = z
  .strictObject({
    address: listenAnywhere().prefault(defaultAddress).describe('HOST:PORT (port 0: any free port) or unix:PATH'),
    unix_mode: fileMode().optional().describe('Mode of the socket at unix:PATH, as in "0666" for clients of every user; left out: what the umask leaves, so mostly only the user of the relay can connect'),
    tls: tls(),
    authorization: authorization.prefault({}).describe('Who may read what. What is denied is left out'),
    client_status: clientStatus.prefault({}).describe('CSDS, the client status service: who sees what'),
    sotw_versions: z.enum(['VERBATIM', 'CONTENT']).default('VERBATIM').describe("version_info of SotW responses. VERBATIM: the control plane's; CONTENT: with a hash of the content, so that a client that reconnects is not sent what it already has"),
    plain_clients: z.enum(['PLAIN', 'WITH_CONSTRAINTS']).default('PLAIN').describe('How clients that subscribe by plain names get resources with constraints: under the plain name, or to the letter of TP2'),
    legacy_wildcard: z.array(resourceType()).optional().describe('Types for which an empty first request means everything, instead of the default (LDS, CDS, SRDS, VHDS and unknown types)'),
    removal_grace: duration().prefault('15s').describe('How long a client keeps a removed resource that its other resources still refer to, such as a cluster of its routes; 0: not at all'),
    max_connection_age: positiveDuration().optional().describe('Connections older than this are closed, with jitter, to rebalance clients; default: never'),
  })
  .superRefine((listener, context) => {
    if (read(listener, 'unix_mode') === undefined || read(read(listener, 'address'), 'kind') !== 'tcp') return;
    const message = 'only an address unix:PATH has a mode';
    context.addIssue({ code: 'custom', path: ['unix_mode'], message });
  }, evenIfWrong)
  .transform(inCode);

// biome-ignore format: a table, one key a line
export const rest = z.strictObject({
  address: listenAddress().prefault('0.0.0.0:18001').describe('HOST:PORT; port 0: any free port'),
  tls: tls(),
});

// biome-ignore format: a table, one key a line
export const admin = z
  .strictObject({
    address: listenAddress().prefault('127.0.0.1:19000').describe('HOST:PORT; port 0: any free port'),
    tls: serverTls.superRefine(checkServerTls, evenIfWrong).transform(filesOf).prefault({}).describe('TLS; left out or {}: plaintext. The files are watched and reloaded. With ca, only clients with a certificate issued by it are served'),
    hosts: z.array(parsed(checkHost)).prefault([]).describe('Host names and addresses that requests may name, besides loopback ones and the bound address; * stands for any characters'),
    read_only: z.boolean().default(false).describe('Refuse calls that change something, such as the ReleaseRemovals RPC'),
  })
  .transform(inCode);

/** Read by everybody who can reach it: nothing here names a client or a resource. */
// biome-ignore format: a table, one key a line
export const metrics = z.strictObject({
  address: listenAddress().prefault('0.0.0.0:19090').describe('HOST:PORT; port 0: any free port'),
});

const listeners = ['xds', 'rest', 'admin', 'metrics'] as const;

/** They listen on every address of the machine. */
export const everywhere: ReadonlySet<string> = new Set(['0.0.0.0', '::']);

/** Two listeners on one address: the second could not start. */
export function checkListeners(file: unknown, context: z.core.$RefinementCtx): void {
  const known: {
    readonly listener: string;
    readonly host: string;
    readonly port: number;
  }[] = [];
  for (const listener of listeners) {
    const address = read(read(file, listener), 'address');
    const [host, port] = [readText(address, 'host'), read(address, 'port')];
    if (host === undefined || typeof port !== 'number' || port === 0) continue;
    const taken = known.find(
      (one) => one.port === port && (one.host === host || everywhere.has(one.host) || everywhere.has(host)),
    );
    if (taken !== undefined) {
      const message = `${formatHostPort(host, port)} is already used by ${taken.listener}.address (${formatHostPort(taken.host, taken.port)}): each listener needs its own port`;
      context.addIssue({ code: 'custom', path: [listener, 'address'], message });
    }
    known.push({ listener, host, port });
  }
}
