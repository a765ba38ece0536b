import type * as z from 'zod';
import type { fileSchema } from './schema.ts';
import type { SourceRange } from './source.ts';

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
  readonly source: {
    readonly file: string;
    /** As it was read, secrets and all. */
    readonly text: string;
    /** Its plain values, before the schema. */
    readonly value: unknown;
    /** Of its text, as `digest` in load.ts. */
    readonly digest: string;
    /** The file's keys with every default filled in and secrets redacted (load.ts). */
    readonly dump: unknown;
    /** By `pathText`. */
    readonly places: ReadonlyMap<string, SourceRange>;
  };
}

export type UpstreamConfig = Config['upstreams'][number];
export type AdsUpstreamConfig = Extract<UpstreamConfig, { readonly kind: 'ads' }>;

/** Paths of PEM files. */
export type ServerTls = NonNullable<Config['admin']['tls']>;
/** Of a listener for clients: with what resumes their TLS sessions. */
export type ClientTls = NonNullable<Config['xds']['tls']>;
