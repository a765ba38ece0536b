import { createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';

/** A certificate made for one test run: no keys in the repository, nothing that expires. */
export interface Issued {
  readonly certificate: string;
  readonly privateKey: string;
  readonly name: string;
  readonly key: KeyObject;
}

export interface IssueOptions {
  readonly name: string;
  /** Left out: signed by itself. */
  readonly issuer?: Issued;
  readonly authority?: boolean;
  /** Left out: a new one. */
  readonly key?: Issued;
  readonly uris?: readonly string[];
  readonly dns?: readonly string[];
  readonly ips?: readonly string[];
  /** Valid until so many days from now; negative: expired. */
  readonly days?: number;
  /** Valid since so many days: 1 unless told. */
  readonly since?: number;
}

const oid = {
  ecdsaWithSha256: [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
  commonName: [0x55, 0x04, 0x03],
  subjectAltName: [0x55, 0x1d, 0x11],
  basicConstraints: [0x55, 0x1d, 0x13],
};

export function issueCertificate(options: IssueOptions): Issued {
  const privateKey = options.key?.key ?? generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  const issuer = options.issuer ?? { name: options.name, key: privateKey };
  const algorithm = sequence(der(0x06, Buffer.from(oid.ecdsaWithSha256)));
  const now = Date.now();
  const until = now + (options.days ?? 1) * 86_400_000;
  const from = Math.min(now, until) - (options.since ?? 1) * 86_400_000;
  const signed = sequence(
    der(0xa0, integer(2)),
    integer(Math.floor(Math.random() * 2 ** 31)),
    algorithm,
    distinguishedName(issuer.name),
    sequence(time(from), time(until)),
    distinguishedName(options.name),
    createPublicKey(privateKey).export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(...extensions(options))),
  );
  const signature = sign('sha256', signed, issuer.key);
  const certificate = sequence(signed, algorithm, der(0x03, Buffer.concat([Buffer.of(0), signature])));
  return {
    certificate: pem(certificate),
    privateKey: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    name: options.name,
    key: privateKey,
  };
}

function extensions(options: IssueOptions): Buffer[] {
  const names = [
    ...(options.uris ?? []).map((uri) => der(0x86, Buffer.from(uri))),
    ...(options.dns ?? []).map((name) => der(0x82, Buffer.from(name))),
    ...(options.ips ?? []).map((ip) => der(0x87, Buffer.from(ip.split('.').map(Number)))),
  ];
  const list: Buffer[] = [];
  if (names.length > 0) list.push(extension(oid.subjectAltName, sequence(...names)));
  if (options.authority === true)
    list.push(extension(oid.basicConstraints, sequence(der(0x01, Buffer.of(0xff)))));
  if (list.length === 0) list.push(extension(oid.basicConstraints, sequence()));
  return list;
}

function extension(id: readonly number[], value: Buffer): Buffer {
  return sequence(der(0x06, Buffer.from(id)), der(0x04, value));
}

function distinguishedName(name: string): Buffer {
  return sequence(der(0x31, sequence(der(0x06, Buffer.from(oid.commonName)), der(0x0c, Buffer.from(name)))));
}

function time(milliseconds: number): Buffer {
  const text = new Date(milliseconds).toISOString().replaceAll(/[-:T]|\.\d+/g, '');
  return der(0x18, Buffer.from(text));
}

function integer(value: number): Buffer {
  const bytes = Buffer.alloc(5);
  bytes.writeUInt32BE(value, 1);
  let start = 0;
  while (start < 4 && bytes[start] === 0 && (bytes[start + 1] ?? 0) < 0x80) start++;
  return der(0x02, bytes.subarray(start));
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return der(0x30, Buffer.concat(parts));
}

function der(tag: number, content: Buffer): Buffer {
  const { length } = content;
  if (length < 0x80) return Buffer.concat([Buffer.of(tag, length), content]);
  if (length < 0x100) return Buffer.concat([Buffer.of(tag, 0x81, length), content]);
  return Buffer.concat([Buffer.of(tag, 0x82, length >> 8, length & 0xff), content]);
}

function pem(certificate: Buffer): string {
  const lines = certificate.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}
