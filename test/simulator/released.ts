import { identity, type Received, type ReceivedResource } from './messages.ts';
import { Violation } from './violation.ts';

interface Sent {
  readonly content: string;
  /** The turn of the gate in which it was sent first. */
  readonly turn: number;
}

/**
 * Rule 7 for one type on one stream of a client that is no canary, or of any client of a type that is frozen: what it has
 * changes only with the gate. Names that it does not have may come at any time.
 */
export class Released {
  readonly #sent = new Map<string, Sent>();

  #excused: number | undefined;

  /**
   * What a client comes back with, which may be all it needs: then nothing is sent (protocol §3.10). It had that before
   * anything that is done to the gate from now on, and so it may lose it then. A union for make before break may show it
   * once more before (protocol §8.3).
   */
  resumed(held: Iterable<ReceivedResource>): void {
    for (const { name, constraints, content } of held)
      this.#sent.set(identity(constraints, name), { content, turn: -1 });
  }

  /**
   * It subscribes to something else now, or has another node: what it has of before goes as upstream answers, and for the
   * sake of make before break some of it later still, however the gate is turned meanwhile. For what it gets after the
   * next turn the rule holds again.
   */
  excuse(turn: number | undefined): void {
    for (const [id, { content }] of this.#sent) this.#sent.set(id, { content, turn: -1 });
    this.#excused = turn;
  }

  /** `turn`: grows with everything that is done to the gate; undefined: it is open. */
  written(received: Received, complete: boolean, turn: number | undefined): void {
    const now = new Map(
      received.resources.map(({ name, constraints, content }) => [identity(constraints, name), content]),
    );
    const gone = [
      ...received.removed.map((name) => identity('', name)),
      ...received.removedVariants.map(({ name, constraints }) => identity(constraints, name)),
      ...(complete ? [...this.#sent.keys()].filter((id) => !now.has(id)) : []),
    ];
    for (const id of gone) {
      if (this.#sent.get(id)?.turn === turn && turn !== undefined)
        throw new Violation(7, `${id} is removed, though nothing was released`);
      this.#sent.delete(id);
    }
    for (const [id, content] of now) {
      const known = this.#sent.get(id);
      if (known?.content === content) continue;
      if (known !== undefined && known.turn === turn)
        throw new Violation(7, `${id} is ${content} after ${known.content}, though nothing was released`);
      this.#sent.set(id, { content, turn: turn === undefined || turn === this.#excused ? -1 : turn });
    }
  }
}
