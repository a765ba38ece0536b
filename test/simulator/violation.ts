/** The rules that every message is held to, as docs/testing.md counts them; 0 is a crash. */
export type Rule = 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10;

export const rules: Readonly<Record<Rule, string>> = {
  0: 'nothing crashes',
  1: 'a resource is a variant that matches, with content that upstream held, never older than before',
  2: 'a removal only if upstream did not have it',
  3: 'a swap is one message',
  4: 'after quiet, what a client holds is what upstream has for it',
  5: 'no response without cause',
  6: 'make before break: no route to a cluster that was lost',
  7: 'what a client has that is no canary changes only when it is released',
  8: 'a change is with the clients of its waves, and with everybody after the last',
  9: 'what was found bad goes to nobody else, and is not forgotten',
  10: 'what clients reported is what the control plane got',
};

export class Violation extends Error {
  readonly rule: Rule;

  constructor(rule: Rule, message: string) {
    super(message);
    this.rule = rule;
  }
}

/** Writes a line into the transcript, if there is one. */
export type Note = (line: () => string) => void;
