import type { Clock } from '../model/clock.ts';
import type { TypeInfo } from '../model/types.ts';
import type { Spans } from '../observe/spans.ts';
import type { HttpAnswer } from '../wire/http-answer.ts';
import type { HttpHead } from '../wire/http-exchange.ts';

/** Clients can ask for a trace with each poll: they must not crowd out the others. */
const mostPerSecond = 50;

/** The spans of REST polls whose client has sent a traceparent: they belong to the client's trace. */
export class PollTraces {
  readonly #spans: Spans;
  readonly #clock: Clock;
  #second = 0;
  #started = 0;

  constructor(spans: Spans, clock: Clock) {
    this.#spans = spans;
    this.#clock = clock;
  }

  /** Returns a function to answer with, which ends the span. A poll that its client gives up has none. */
  traced(
    { headers, path }: HttpHead,
    info: TypeInfo,
    answered: (answer: HttpAnswer) => void,
  ): (answer: HttpAnswer) => void {
    const { traceparent } = headers;
    if (typeof traceparent !== 'string' || !this.#hasRoom()) return answered;
    const attributes = { 'http.request.method': 'POST', 'url.path': path, 'distributary.type': info.short };
    const span = this.#spans.start('poll', this.#clock.monotonic(), attributes, traceparent);
    if (span === undefined) return answered;
    this.#started++;
    return (answer) => {
      answered(answer);
      span.end(this.#clock.monotonic(), { 'http.response.status_code': answer.status });
    };
  }

  #hasRoom(): boolean {
    const second = Math.floor(this.#clock.monotonic() / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#started = 0;
    }
    return this.#started < mostPerSecond;
  }
}
