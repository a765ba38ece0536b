import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { z } from 'zod';
import { type Issued, issueCertificate } from '../../support/certificates.ts';
import { Envoy } from './envoy.ts';
import { root } from './paths.ts';
import { PemFiles } from './pem-files.ts';
import { RelayProcess } from './relay.ts';
import { socketAddress } from './resources.ts';

const recipes = join(root, 'deploy/recipes');

export const recipePath = (name: string): string => join(recipes, name);

/** Who has a certificate in the recipes, and the DNS name in it. */
const names = {
  relay: 'relay.example.com',
  'control-plane': 'control-plane.example.com',
  envoy: 'edge.envoy.example.com',
} as const;
type Role = keyof typeof names;

/** tls.crt, tls.key and ca.crt of each role, as cert-manager would write them. */
export class RecipeCertificates implements Disposable {
  readonly #files: Readonly<Record<Role, PemFiles>>;

  constructor() {
    const authority = issueCertificate({ name: 'authority', authority: true });
    const files = (role: Role): PemFiles => directory(authority, names[role]);
    this.#files = { relay: files('relay'), 'control-plane': files('control-plane'), envoy: files('envoy') };
  }

  path(role: Role): string {
    return this.#files[role].path('');
  }

  [Symbol.dispose](): void {
    for (const files of Object.values(this.#files)) files[Symbol.dispose]();
  }
}

function directory(authority: Issued, dns: string): PemFiles {
  const files = new PemFiles();
  files.bundle('ca.crt', [authority]);
  files.identity('tls', issueCertificate({ name: dns, issuer: authority, dns: [dns] }));
  return files;
}

/** What a recipe's relay.yaml reads from the environment. */
export type RecipeEnvironment = Readonly<Record<string, string>>;

/** A relay with the configuration of a recipe, to the letter: only the environment says where everything is. */
export function startRecipe(file: string, env: RecipeEnvironment): Promise<RelayProcess> {
  const any = '127.0.0.1:0';
  return RelayProcess.start(readFileSync(recipePath(file), 'utf8'), {
    env: { XDS: any, ADMIN: any, ...env },
  });
}

const bootstrapSchema = z.looseObject({
  node: z.looseObject({}),
  static_resources: z.looseObject({ clusters: z.tuple([z.looseObject({ name: z.literal('relay') })]) }),
});

interface RecipeProxy {
  readonly id?: string;
  readonly metadata?: object;
}

/** An Envoy with the bootstrap of the recipes; only its node, its addresses and the place of its files are others. */
export const startRecipeEnvoy = (
  binary: string,
  relay: RelayProcess,
  certificates: RecipeCertificates,
  { id = 'edge-1', metadata = {} }: RecipeProxy,
): Promise<Envoy> =>
  bootRecipe(binary, relay, 'envoy.yaml', {
    tls: ['/etc/envoy/tls', certificates.path('envoy')],
    node: { id, metadata },
  });

interface RecipeBootstrap {
  /** The directory in the file, and the one to use. */
  readonly tls: readonly [from: string, to: string];
  readonly node: object;
}

/** The same with the bootstrap that a recipe has for itself. */
export function bootRecipe(
  binary: string,
  relay: RelayProcess,
  file: string,
  { tls, node }: RecipeBootstrap,
): Promise<Envoy> {
  const text = readFileSync(recipePath(file), 'utf8');
  const content = bootstrapSchema.parse(parse(text.replaceAll(...tls)));
  const [cluster] = content.static_resources.clusters;
  const port = Number(relay.xds.slice(relay.xds.lastIndexOf(':') + 1));
  const lb_endpoints = [{ endpoint: { address: socketAddress(port) } }];
  const load_assignment = { cluster_name: 'relay', endpoints: [{ lb_endpoints }] };
  return Envoy.boot(binary, {
    ...content,
    node: { ...content.node, ...node },
    admin: { address: socketAddress(0) },
    static_resources: { clusters: [{ ...cluster, load_assignment }] },
  });
}
