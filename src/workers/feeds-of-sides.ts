import type { TypeUrl } from '../model/brand.ts';
import type { Interest } from '../model/transaction.ts';
import type { Refusals, Suspect, Upstream, UpstreamState } from '../model/upstream.ts';
import type { AdsUpstream } from '../upstream/ads/ads-upstream.ts';

/** The feeds of both sides as one upstream: each gets every interest (docs/adr/0130). */
export class FeedsOfSides implements Upstream {
  readonly name: string;
  readonly #released: AdsUpstream;
  readonly #canary: AdsUpstream;

  constructor(released: AdsUpstream, canary: AdsUpstream) {
    this.name = released.name;
    this.#released = released;
    this.#canary = canary;
  }

  claims(type: TypeUrl, selector: string): boolean {
    return this.#released.claims(type, selector);
  }

  subscribe(interest: Interest): void {
    this.#each((feed) => feed.subscribe(interest));
  }

  resubscribe(interest: Interest): void {
    this.#each((feed) => feed.resubscribe(interest));
  }

  unsubscribe(interest: Interest): void {
    this.#each((feed) => feed.unsubscribe(interest));
  }

  markIdle(interest: Interest): void {
    this.#each((feed) => feed.markIdle(interest));
  }

  markActive(interest: Interest): void {
    this.#each((feed) => feed.markActive(interest));
  }

  refusal(interest: Interest): string | undefined {
    return this.#released.refusal(interest) ?? this.#canary.refusal(interest);
  }

  refusals(): Refusals | undefined {
    return this.#released.refusals() ?? this.#canary.refusals();
  }

  /** The worse of the two. */
  state(): UpstreamState {
    const [released, canary] = [this.#released.state(), this.#canary.state()];
    return {
      ...(released.connected ? canary : released),
      everConnected: released.everConnected && canary.everConnected,
      down: released.down || canary.down,
    };
  }

  suspects(): readonly Suspect[] {
    return [...this.#released.suspects(), ...this.#canary.suspects()];
  }

  /** See AdsUpstream. */
  reannounce(): boolean {
    const released = this.#released.reannounce();
    return this.#canary.reannounce() || released;
  }

  start(): void {
    this.#each((feed) => feed.start());
  }

  async stop(): Promise<void> {
    await Promise.all([this.#released.stop(), this.#canary.stop()]);
  }

  #each(act: (feed: AdsUpstream) => void): void {
    act(this.#released);
    act(this.#canary);
  }
}
