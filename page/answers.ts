import type { Plain } from '../src/admin/service.ts';
import type * as admin from '../src/gen/distributary/admin/v1/admin_pb.ts';
import type { DiffResponse } from '../src/gen/distributary/admin/v1/changes_pb.ts';
import type * as fleet from '../src/gen/distributary/admin/v1/fleet_pb.ts';
import type { LoadResponse } from '../src/gen/distributary/admin/v1/load_pb.ts';

/** Answers of AdminService as the relay writes them in JSON: with the names of the proto files, and with what is 0 or empty. */

type Snake<Name> = Name extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `_${Lowercase<First>}`}${Snake<Rest>}`
  : Name;

type Json<T> = T extends readonly (infer Element)[]
  ? readonly Json<Element>[]
  : T extends object
    ? { readonly [Key in keyof T as string extends Key ? Key : Snake<Key>]: Json<T[Key]> }
    : T;

export type Client = Json<Plain<admin.Client>>;
export type ClientTypeState = Client['types'][number];
export type Clients = Json<Plain<admin.ListClientsResponse>>;
export type Explanation = Json<Plain<admin.ExplainResponse>>;
export type Resource = Json<Plain<admin.GetResourceResponse>>;
export type Holding = Json<Plain<fleet.ClientHolding>>;
export type ClientDetail = Json<Plain<fleet.GetClientResponse>>;
export type Match = Json<Plain<fleet.Match>>;
export type Matches = Json<Plain<fleet.ListMatchesResponse>>;
export type Loads = Json<Plain<LoadResponse>>;
export type Differences = Json<Plain<DiffResponse>>;
