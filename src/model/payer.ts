/** Whose account work and memory go to (wire/accounts.ts). */
export interface Payer {
  /** So many milliseconds of work are done. */
  spent(milliseconds: number): void;
  /** So many bytes more, or less, are kept for it alone. They count beyond the bound too. */
  keeps(bytes: number): void;
}
