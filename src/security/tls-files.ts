import { dirname } from 'node:path';
import { fail, type Result } from '../model/result.ts';
import { readNamed } from '../wire/named-file.ts';
import { explainError } from '../wire/node-error.ts';
import { checkTlsMaterial, type TlsMaterial } from '../wire/tls-material.ts';

/** Paths of PEM files, and of a secret. */
export type TlsFiles = { readonly [Part in keyof TlsMaterial]?: string | undefined };

/** Each with its key in the configuration. */
const parts = [
  ['certificate', 'certificate'],
  ['privateKey', 'private_key'],
  ['ca', 'ca'],
  ['ticketSecret', 'session_ticket_secret_file'],
] as const satisfies readonly (readonly [keyof TlsMaterial, string])[];

/** Reads the files and checks that they parse and belong together. */
export async function readTlsFiles(files: TlsFiles): Promise<Result<TlsMaterial>> {
  const material: { -readonly [Part in keyof TlsMaterial]: TlsMaterial[Part] } = {};
  for (const [part, key] of parts) {
    const path = files[part];
    if (path === undefined) continue;
    try {
      material[part] = await readNamed(path);
    } catch (error) {
      return fail(`${key} ${path}: ${explainError(error)}`);
    }
  }
  const checked = checkTlsMaterial(material);
  return checked.ok ? checked : fail(`${paths(files).join(', ')}: ${checked.error}`);
}

/** Where they are. */
export const directoriesOf = (files: TlsFiles): ReadonlySet<string> =>
  new Set(paths(files).map((path) => dirname(path)));

function paths(files: TlsFiles): string[] {
  return parts.map(([part]) => files[part]).filter((path) => path !== undefined);
}
