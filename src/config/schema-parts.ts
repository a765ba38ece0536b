import { RE2JS } from 're2js';
import { z } from 'zod';
import { errorMessage, fail, ok, type Result } from '../model/result.ts';
import { knownTypes, typeByName, unknownType } from '../model/types.ts';
import { parseNamePattern } from '../security/pattern.ts';
import { checkAddress, checkTcpAddress } from './check-address.ts';
import { durationPattern, parseDuration } from './duration.ts';

/**
 * A string with a syntax of its own; the output is what it says. The error of `parse` says what is wrong and what is
 * accepted.
 */
export const parsed = <T>(parse: (text: string) => Result<T>, meta: Readonly<Record<string, unknown>> = {}) =>
  z.string().meta(meta).transform(parseWith(parse));

const parseWith =
  <T>(parse: (text: string) => Result<T>) =>
  (text: string, context: z.core.$RefinementCtx): T => {
    const result = parse(text);
    if (result.ok) return result.value;
    context.addIssue(result.error);
    return z.NEVER;
  };

/** Anything but the empty string. */
export const name = () => z.string().min(1);

/** Milliseconds. */
export const duration = () => parsed(parseDuration, { pattern: durationPattern });

/** A duration of 0 would make no sense. */
export const positiveDuration = () =>
  parsed(
    (text) => {
      const length = parseDuration(text);
      return length.ok && length.value === 0 ? fail('must be longer than 0') : length;
    },
    { pattern: durationPattern },
  );

export const count = (least = 1) => z.int().min(least);

/** HOST:PORT. Port 0 is accepted: any free port. */
export const listenAddress = () => parsed(checkTcpAddress);
/** HOST:PORT or unix:PATH. */
export const listenAnywhere = () => parsed(checkAddress);
/** HOST:PORT or unix:PATH; the port is one that can be connected to. */
export const endpoint = () =>
  parsed((text) => {
    const address = checkAddress(text);
    const unreachable = address.ok && address.value.kind === 'tcp' && address.value.port === 0;
    return unreachable ? fail(`${JSON.stringify(text)} has port 0: use 1 to 65535`) : address;
  });

/** A short name such as `cds`, or a type URL. */
export const resourceType = () =>
  parsed(
    (text) => {
      const url = typeByName(text);
      return url === undefined ? fail(unknownType(text)) : ok(url);
    },
    { examples: knownTypes.map((info) => info.short) },
  );

/** The name of a resource, or a prefix of names with a trailing `*`. */
export const resourceNames = () => name().transform(parseWith(parseNamePattern));

/** An xdstp authority: the part between `xdstp://` and the next slash. */
export const authority = () =>
  parsed((text) => {
    if (text !== '' && !/[/?#\s]/.test(text)) return ok(text);
    return fail(
      `${JSON.stringify(text)} is not an authority: use the part after "xdstp://", as in "example.com"`,
    );
  });

/** A subject alternative name: a URI, or `dns:NAME`; either may have a `*`. */
export const principal = () =>
  parsed((text) => {
    if (/^[a-z][a-z0-9+.-]*:./i.test(text)) return ok(text);
    return fail(
      `${JSON.stringify(text)} is not a principal: use a URI as in "spiffe://example.com/*", or "dns:*.example.com"`,
    );
  });

/** RE2 compiles it; what RE2 lacks (look-around, back-references) is refused. */
export const re2 = () =>
  parsed((text) => {
    try {
      RE2JS.compile(text);
      return ok(text);
    } catch (error) {
      return fail(`not an RE2 pattern: ${errorMessage(error)}`);
    }
  });

/**
 * A check of several keys of one mapping or list. It also runs when some of them are wrong in themselves, so that every
 * problem is reported at once: it must not assume any types, and reads values with `read`.
 */
export const evenIfWrong = {
  when: ({ value }: { readonly value: unknown }) => typeof value === 'object' && value !== null,
};

/** A field of a value that may be anything. */
export function read(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, key)
    ? new Map<string, unknown>(Object.entries(value)).get(key)
    : undefined;
}

export const readText = (value: unknown, key: string): string | undefined => {
  const field = read(value, key);
  return typeof field === 'string' ? field : undefined;
};

export const readList = (value: unknown, key: string): readonly unknown[] => {
  const field = read(value, key);
  return Array.isArray(field) ? field : [];
};
