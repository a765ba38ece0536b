import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { fail, ok, type Result } from '../model/result.ts';
import { explainError } from '../wire/node-error.ts';
import type { Config } from './config.ts';
import { type Complaint, type ConfigProblem, locate, type Path } from './source.ts';

/**
 * The files that a configuration names: the directories of resources can be listed, certificates and keys parse and
 * belong together. Synchronous: for the start, a reload and `validate`.
 */
export function checkFiles(config: Config): readonly ConfigProblem[] {
  const complaints: Complaint[] = [];
  const listeners = [
    { path: ['xds', 'tls'], tls: config.xds.tls },
    { path: ['rest', 'tls'], tls: config.rest?.tls },
    { path: ['admin', 'tls'], tls: config.admin.tls },
  ];
  for (const { path, tls } of listeners) {
    if (tls === undefined) continue;
    complaints.push(...checkIdentity(path, tls), ...checkAuthorities(path, tls.ca));
  }
  config.upstreams.forEach((upstream, index) => {
    const path = ['upstreams', index, upstream.kind];
    if (upstream.kind === 'filesystem') {
      complaints.push(...checkDirectory([...path, 'path'], upstream.path));
      return;
    }
    const { tls } = upstream;
    if (tls === undefined) return;
    if (tls.identity !== undefined) complaints.push(...checkIdentity([...path, 'tls'], tls.identity));
    complaints.push(...checkAuthorities([...path, 'tls'], tls.ca));
  });
  return complaints.map((complaint) => locate(complaint, config.source.places));
}

function checkDirectory(path: Path, directory: string): readonly Complaint[] {
  try {
    readdirSync(directory);
    return [];
  } catch (error) {
    return [{ path, message: `${directory} cannot be listed: ${explainError(error)}` }];
  }
}

interface Identity {
  readonly certificate: string;
  readonly privateKey: string;
}

function checkIdentity(path: Path, files: Identity): readonly Complaint[] {
  const certificates = readCertificates(files.certificate);
  const key = readPrivateKey(files.privateKey);
  const complaints: Complaint[] = [];
  if (!certificates.ok) complaints.push({ path: [...path, 'certificate'], message: certificates.error });
  if (!key.ok) complaints.push({ path: [...path, 'private_key'], message: key.error });
  if (certificates.ok && key.ok && certificates.value[0]?.checkPrivateKey(key.value) !== true) {
    const message = `${files.privateKey} is not the key of the first certificate in ${files.certificate}`;
    complaints.push({ path: [...path, 'private_key'], message });
  }
  return complaints;
}

function checkAuthorities(path: Path, file: string | undefined): readonly Complaint[] {
  if (file === undefined) return [];
  const certificates = readCertificates(file);
  return certificates.ok ? [] : [{ path: [...path, 'ca'], message: certificates.error }];
}

/** At least one. */
function readCertificates(file: string): Result<readonly X509Certificate[]> {
  const text = readText(file);
  if (!text.ok) return text;
  const blocks = text.value.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  if (blocks.length === 0) return fail(`${file} holds no PEM certificate`);
  const certificates: X509Certificate[] = [];
  for (const [index, block] of blocks.entries()) {
    try {
      certificates.push(new X509Certificate(block));
    } catch (error) {
      return fail(`certificate ${index + 1} in ${file} cannot be parsed: ${explainError(error)}`);
    }
  }
  return ok(certificates);
}

function readPrivateKey(file: string): Result<KeyObject> {
  const text = readText(file);
  if (!text.ok) return text;
  try {
    return ok(createPrivateKey(text.value));
  } catch (error) {
    return fail(
      `${file} holds no PEM private key that can be used without a password: ${explainError(error)}`,
    );
  }
}

function readText(file: string): Result<string> {
  try {
    return ok(readFileSync(file, 'utf8'));
  } catch (error) {
    return fail(`${file} cannot be read: ${explainError(error)}`);
  }
}
