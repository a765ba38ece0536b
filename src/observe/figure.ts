/** One point of the charts. The page's program takes this file, so nothing here is Node's. */
export interface Figure {
  /** Milliseconds since the epoch. */
  readonly at: number;
  /** Responses handed to clients, for each second. */
  readonly updates: number;
  /** Seconds from the receipt of an update to the ACK, of 99 % of them; null: there was none. */
  readonly acknowledged: number | null;
  readonly streams: number;
  /** Of all processes, in bytes. */
  readonly memory: number;
  /** Of the busiest process: 0 to 1. */
  readonly busy: number;
}
