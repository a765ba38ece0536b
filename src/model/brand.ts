/** Nominal types for the strings and numbers that must not be mixed up. The casts of the whole program are here. */
declare const tag: unique symbol;
type Brand<T, Name extends string> = T & { readonly [tag]: Name };

/** A resource type's URL, `type.googleapis.com/…`. */
export type TypeUrl = Brand<string, 'TypeUrl'>;
/** A resource's name in canonical spelling: xdstp names have their context parameters sorted (protocol §6). */
export type ResourceName = Brand<string, 'ResourceName'>;
/** Canonical form of a constraint expression: equal keys, equal meaning of identity (TP2). */
export type ConstraintsKey = Brand<string, 'ConstraintsKey'>;
/** Canonical form of a set of dynamic parameters. */
export type ParametersKey = Brand<string, 'ParametersKey'>;
/** The process-wide clock of committed transactions. Larger is later. */
export type Revision = Brand<number, 'Revision'>;
/** The serial number of an encoded response: its nonce, written in decimal. Process-wide, growing. */
export type Serial = Brand<number, 'Serial'>;
/** A message of a client, once the work for it is charged to its account (wire/accounts.ts): handlers take no other. */
export type Charged = Brand<Buffer, 'Charged'>;

export const typeUrl = (value: string): TypeUrl => value as TypeUrl;
/** For names already canonical; see `canonicalName` in xdstp.ts for those that a peer sent. */
export const resourceName = (value: string): ResourceName => value as ResourceName;
export const constraintsKey = (value: string): ConstraintsKey => value as ConstraintsKey;
export const parametersKey = (value: string): ParametersKey => value as ParametersKey;
export const revision = (value: number): Revision => value as Revision;
export const serial = (value: number): Serial => value as Serial;
/** For wire/accounts.ts. */
export const charged = (value: Buffer): Charged => value as Charged;
