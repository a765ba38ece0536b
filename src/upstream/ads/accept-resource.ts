import { type ResourceName, type TypeUrl, typeUrl } from '../../model/brand.ts';
import { type Constraints, parseConstraints } from '../../model/constraints.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import { quote } from '../../model/text.ts';
import type { Put, ResourceError } from '../../model/transaction.ts';
import { isKnownType, longestTypeUrl } from '../../model/types.ts';
import { canonicalName, canonicalNames, isXdstp } from '../../model/xdstp.ts';
import type { IncomingError, IncomingName, IncomingResource } from '../../wire/response-reader.ts';
import type { SeenVariants } from './acked-resources.ts';
import type { Stamp } from './stamp.ts';

/** (name, constraints): what a variant is known by, with the session's stamp. */
export interface Identity {
  readonly name: ResourceName;
  readonly constraints: Constraints;
}

/** What is needed to judge what arrives. */
export interface AcceptanceRules {
  readonly type: TypeUrl;
  readonly maxConstraintDepth: number;
  readonly stamp: Stamp;
}

/** A redirect of an xdstp name: passed on opaquely (protocol §6). */
const REDIRECT_URL = 'type.googleapis.com/xds.core.v3.ResourceLocator';

/** Checks one resource. An error is a reason for a NACK and names the resource. */
export function acceptResource(
  rules: AcceptanceRules,
  resource: IncomingResource,
  seen: SeenVariants,
): Result<Put> {
  if (lacksName(rules, resource)) return fail(`a resource has no name (its type is ${rules.type})`);
  const identity = identify(rules, resource);
  if (!identity.ok) return identity;
  const { name, constraints } = identity.value;
  if (resource.any !== undefined && resource.anyType !== rules.type) {
    const redirect = resource.anyType === REDIRECT_URL && isXdstp(resource.name);
    if (!redirect) {
      return fail(
        `${named(resource.name)} is of type ${quote(resource.anyType, 200)} in a response of ${rules.type}`,
      );
    }
  }
  const aliases = canonicalNames(resource.aliases, rules.type);
  if (!aliases.ok) return fail(`alias of ${named(resource.name)}: ${aliases.error}`);
  if (!seen.add(name, constraints.key)) return fail(twice(resource.name));
  const { version, any, ttlMilliseconds, doNotCache, metadata } = resource;
  return ok({
    name,
    constraints,
    version,
    any,
    aliases: aliases.value,
    ttlMilliseconds,
    doNotCache,
    metadata,
  });
}

/** What the entries of one response have named so far. */
export interface SeenIdentities {
  readonly bodies: SeenVariants;
  readonly removals: SeenVariants;
}

/** Checks a removal (`removed_resources` has no constraints). Undefined: the response has it already (protocol §5b.8). */
export function acceptRemoval(
  rules: AcceptanceRules,
  removed: IncomingName,
  { bodies, removals }: SeenIdentities,
): Result<Identity | undefined> {
  if (lacksName(rules, removed)) return fail('a removed resource has no name');
  const identity = identify(rules, removed);
  if (!identity.ok) return identity;
  const { name, constraints } = identity.value;
  if (bodies.has(name, constraints.key)) return fail(twice(removed.name));
  return removals.add(name, constraints.key) ? identity : ok(undefined);
}

export function acceptError(rules: AcceptanceRules, error: IncomingError): Result<ResourceError> {
  if (lacksName(rules, error)) return fail('a resource error has no name');
  const identity = identify(rules, error);
  if (!identity.ok) return identity;
  const { code, message, status } = error;
  return ok({ ...identity.value, code, message, status });
}

/** Why a response of a type that nobody asked for is refused, and what that type is `known` by in metrics and logs. */
export function unsolicitedType(url: string): {
  readonly type: TypeUrl;
  readonly known: TypeUrl;
  readonly message: string;
} {
  const type = typeUrl(url);
  const length = Buffer.byteLength(url);
  if (length <= longestTypeUrl) {
    return { type, known: type, message: `type ${JSON.stringify(url)} was not asked for` };
  }
  const known = typeUrl(`${url.slice(0, longestTypeUrl)}…`);
  return { type, known, message: `type_url has ${length} bytes: at most ${longestTypeUrl} are accepted` };
}

/** Of the types of the xDS protocol each resource has a name. Of others the empty name is one: Istio's NameTable has it. */
const lacksName = ({ type }: AcceptanceRules, { name }: IncomingName): boolean =>
  name === '' && isKnownType(type);

function identify(rules: AcceptanceRules, received: IncomingName): Result<Identity> {
  const name = canonicalName(received.name, rules.type);
  if (!name.ok) return name;
  const parsed = parseConstraints(received.constraints, rules.maxConstraintDepth);
  if (!parsed.ok) return fail(`${named(received.name)}: ${parsed.error}`);
  const constraints = rules.stamp(parsed.value);
  if (!constraints.ok) return fail(`${named(received.name)}: ${constraints.error}`);
  return ok({ name: name.value, constraints: constraints.value });
}

function twice(name: string): string {
  return `${named(name)} comes twice with the same constraints`;
}

const named = (name: string): string => `resource ${quote(name, 200)}`;
