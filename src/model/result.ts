/** The outcome of something that may fail, as a value: the result, or the reason for the failure. */
export type Result<T, E = string> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: E };

export const ok = <T>(value: T): Result<T, never> => ({ ok: true, value });
export const fail = <E>(error: E): Result<never, E> => ({ ok: false, error });

/** What was thrown, in its own words. Errors of the operating system: see wire/node-error.ts. */
export const errorMessage = (thrown: unknown): string =>
  thrown instanceof Error ? thrown.message : String(thrown);

/** What a function returns or throws, as a value. */
export function attempt<T, E>(run: () => T, explain: (thrown: unknown) => E): Result<T, E> {
  try {
    return ok(run());
  } catch (thrown) {
    return fail(explain(thrown));
  }
}

/** For the default of a switch over a union: the compiler finds the forgotten case. */
export function assertNever(value: never): never {
  throw new Error(`unexpected case: ${JSON.stringify(value)}`);
}
