import { create } from '@bufbuild/protobuf';
import {
  type Change,
  HistoryRequestSchema,
  HistoryResponseSchema,
} from '../../gen/distributary/admin/v1/changes_pb.ts';
import type { Clock } from '../../model/clock.ts';
import { collected } from '../answers.ts';
import type { Plain } from '../plain.ts';
import type { Inspector } from '../service.ts';
import type { PageModel } from './model.ts';
import { pageModel } from './page-model.ts';

/** What is kept of the history, and for how long it is not looked at again, in milliseconds. */
const eventsKept = 50;
const settlesWithinMs = 10_000;

/** Asks the relay for what the page shows. */
export class ModelMaker {
  readonly #inspector: Inspector;
  readonly #clock: Clock;
  /** A change may have a thousand names: the list is made again when there is a new change, or an old one may have settled. */
  #history: { readonly at: number; readonly revision: number; readonly changes: readonly Plain<Change>[] } = {
    at: -Infinity,
    revision: 0,
    changes: [],
  };

  constructor(inspector: Inspector, clock: Clock) {
    this.#inspector = inspector;
    this.#clock = clock;
  }

  async make(): Promise<PageModel> {
    const { page } = this.#inspector;
    const [status, classes] = [await this.#inspector.status(), await this.#inspector.listClasses()];
    return pageModel({
      status,
      classes,
      facts: page.facts(),
      changes: await this.#changes(),
      lines: page.lines(),
      upstreamOf: (type, selector) => page.upstreamOf(type, selector),
    });
  }

  async #changes(): Promise<readonly Plain<Change>[]> {
    const { changes } = this.#inspector;
    const now = this.#clock.monotonic();
    const { revision } = changes;
    if (revision !== this.#history.revision || now - this.#history.at >= settlesWithinMs) {
      const listed = await changes.history(create(HistoryRequestSchema, { limit: eventsKept }));
      const history = await collected(HistoryResponseSchema, listed);
      this.#history = { at: now, revision, changes: history.changes };
    }
    return this.#history.changes;
  }
}
