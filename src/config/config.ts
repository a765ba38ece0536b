import type * as z from 'zod';
import type { fileSchema } from './schema.ts';
import type { ConfigSource } from './source.ts';

/** Lists and mappings within, too. */
type Immutable<T> = T extends string | number | boolean | undefined
  ? T
  : { readonly [Key in keyof T]: Immutable<T[Key]> };

type Parsed = z.output<typeof fileSchema>;

/** The whole configuration, every default filled in: see schema.ts for the keys. */
export interface Config extends Immutable<Omit<Parsed, 'node'>> {
  /** Its metadata is a google.protobuf.Struct in JSON. */
  readonly node: Readonly<Parsed['node']>;
  /** Where it came from, for error messages and /config_dump. */
  readonly source: ConfigSource;
}

export type UpstreamConfig = Config['upstreams'][number];
export type AdsUpstreamConfig = Extract<UpstreamConfig, { readonly kind: 'ads' }>;

/** Paths of PEM files. */
export type ServerTls = NonNullable<Config['admin']['tls']>;
/** Of a listener for clients: with what resumes their TLS sessions. */
export type ClientTls = NonNullable<Config['xds']['tls']>;
