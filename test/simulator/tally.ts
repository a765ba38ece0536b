/** How often each kind of event has occurred: a rule that nothing exercises would hold for ever. */
export class Tally {
  readonly counts = new Map<string, number>();

  count(event: string): void {
    this.counts.set(event, (this.counts.get(event) ?? 0) + 1);
  }

  add(other: Tally): void {
    for (const [event, count] of other.counts) this.counts.set(event, (this.counts.get(event) ?? 0) + count);
  }
}
