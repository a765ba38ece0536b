import { useEffect, useRef, useState } from 'preact/hooks';
import { printable } from '../src/model/text.ts';
import { trusted } from './trusted.ts';

/** What a question has come to. While it is asked again, the last answer stays. */
export interface Asked<T> {
  readonly answer: T | undefined;
  /** Empty: none. */
  readonly error: string;
}

const longestMs = 15_000;

/** Asks AdminService over Connect. Throws what the relay says. */
async function ask<T>(method: string, request: object): Promise<T> {
  const response = await fetch(`distributary.admin.v1.AdminService/${method}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(request),
    signal: AbortSignal.timeout(longestMs),
  });
  const body = trusted<{ readonly message?: string }>(await response.json());
  if (!response.ok) throw new Error(body.message ?? `status ${response.status}`);
  return trusted<T>(body);
}

/**
 * The answer for this request, asked again when the request or `refresh` changes. While an answer is on its way, the same
 * is not asked again: one that takes longer than a refresh is shown all the same.
 */
export function useAnswer<T>(method: string, request: object, refresh: number | string): Asked<T> {
  const key = JSON.stringify([method, request]);
  const [asked, setAsked] = useState<Asked<T> & { readonly key: string }>({
    answer: undefined,
    error: '',
    key,
  });
  /** The request whose answer is on its way. */
  const asking = useRef<string>(undefined);
  useEffect(() => {
    if (asking.current === key) return;
    asking.current = key;
    const set = (next: Parameters<typeof setAsked>[0]): void => {
      if (asking.current !== key) return;
      asking.current = undefined;
      setAsked(next);
    };
    const answered = async (): Promise<void> => {
      try {
        const answer = await ask<T>(method, request);
        set({ answer, error: '', key });
      } catch (error) {
        const text = error instanceof Error ? error.message : String(error);
        set((before) => ({
          answer: before.key === key ? before.answer : undefined,
          error: printable(text),
          key,
        }));
      }
    };
    void answered();
  }, [key, refresh]);
  useEffect(
    () => () => {
      asking.current = undefined;
    },
    [],
  );
  return asked;
}
