export type Attributes = Readonly<Record<string, string | number | boolean>>;

/** A span that is sampled and has begun. Times are by `Clock.monotonic()`. */
export interface OpenSpan {
  /** A part of it that is over. */
  child(name: string, from: number, until: number, attributes?: Attributes): void;
  end(at: number, attributes?: Attributes): void;
}

/** Where spans go: an OTLP collector, or a test. Nothing waits for it. */
export interface Spans {
  /** `parent`: a W3C traceparent. Undefined: the span is not sampled. */
  start(name: string, at: number, attributes: Attributes, parent?: string): OpenSpan | undefined;
  /** Sends what is left, for a short time. */
  stop(): Promise<void>;
}
