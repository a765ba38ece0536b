import { resourceName, type TypeUrl, typeUrl } from '../model/brand.ts';
import { type Constraints, stampConstraints } from '../model/constraints.ts';
import { itsOwn, type LoadOrigin } from '../model/load.ts';
import { onceFor } from '../model/maps.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../model/parameters.ts';
import { type Interest, WILDCARD } from '../model/transaction.ts';
import { Code } from './grpc-status.ts';
import { encodeStatus } from './responses.ts';

// What a relay of this kind says to another one, and no other server or client does. Loops of relays are in via.ts.

/**
 * Client feature of a relay that passes variants through (NATIVE): its plain names are locators without parameters.
 * To any other server they look like everybody's names (protocol §5b); this one must not derive parameters for
 * them, and sends their constraints.
 */
export const PASSES_VARIANTS = 'distributary.passes-variants';

/** node.user_agent_name of a relay. */
export const USER_AGENT = 'distributary';

/**
 * How replicas of a relay ask each other while their control plane is away (docs/adr/0126-siblings.md): over delta ADS,
 * as a relay of variants, on streams with this request header. Its value is the id of the relay that asks. Who answers
 * asks nobody, so no such stream leads in a circle.
 */
export const SIBLING_HEADER = 'x-distributary-sibling';

/**
 * A type that only siblings know: a resource for each interest that a relay can answer, whose name says which. Who
 * subscribes to its wildcard learns what to ask for.
 */
export const INTERESTS_TYPE: TypeUrl = typeUrl('type.googleapis.com/distributary.sibling.v1.Interest');

export const ALL_INTERESTS: Interest = {
  type: INTERESTS_TYPE,
  selector: WILDCARD,
  parameters: NO_PARAMETERS,
};

/** An interest as the name of a resource. */
export function nameOfInterest({ type, selector, parameters }: Interest): string {
  return JSON.stringify([type, selector, ...[...parameters.entries].flat()]);
}

/** Undefined: it is not one. */
export function interestOfName(name: string): Interest | undefined {
  const parts = stringsOf(name);
  const [type, selector, ...rest] = parts ?? [];
  if (type === undefined || type === INTERESTS_TYPE || selector === undefined || rest.length % 2 !== 0)
    return undefined;
  const pairs: [string, string][] = [];
  for (let at = 0; at < rest.length; at += 2) pairs.push([rest[at] ?? '', rest[at + 1] ?? '']);
  return {
    type: typeUrl(type),
    selector: resourceName(selector),
    parameters: internParameters(pairs),
  };
}

function stringsOf(text: string): readonly string[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.every((part) => typeof part === 'string') ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Client feature of a relay that is told by resource errors with UNKNOWN_STATUS what is unknown (protocol §3.13): in full-state
 * SotW responses which names, in delta which wildcards and globs. To it, what a full state lacks and does not say is
 * unknown is absent.
 */
export const UNKNOWN_NAMES = 'distributary.unknown-names';

/** The google.rpc.Status of these resource errors. It goes from a relay to a relay, and never further. */
export const UNKNOWN_STATUS = encodeStatus(Code.UNAVAILABLE, 'distributary: not known yet');

export function isUnknownName({ status }: { readonly status: Uint8Array }): boolean {
  return status.length === UNKNOWN_STATUS.length && Buffer.compare(status, UNKNOWN_STATUS) === 0;
}

/** In such an error of a wildcard or glob: for exactly which parameters. Each response asks again while it is unknown. */
export const exactly = onceFor(
  (parameters: Parameters): Constraints => stampConstraints([...parameters.entries.keys()], parameters),
);

/**
 * Client features of a relay that reports the load of its clients: how often it was added up, as a number at the end, and
 * that something waits that it has accepted (`LoadOrigin`). A node with others comes with the report that it is about.
 */
const LOAD_STAGES = 'distributary.load-stages.';
const PARTLY_PASSED_ON = 'distributary.partly-passed-on';

/** More relays are not one behind the other. */
const mostStages = 32;

export const featuresOfOrigin = ({ stages, isPartial }: LoadOrigin): readonly string[] => [
  `${LOAD_STAGES}${stages}`,
  ...(isPartial ? [PARTLY_PASSED_ON] : []),
];

export function originOfFeatures(features: readonly string[]): LoadOrigin {
  const said = features.find((one) => one.startsWith(LOAD_STAGES));
  const stages = Number(said?.slice(LOAD_STAGES.length));
  if (!Number.isSafeInteger(stages) || stages < 1) return itsOwn;
  return { stages: Math.min(stages, mostStages), isPartial: features.includes(PARTLY_PASSED_ON) };
}
