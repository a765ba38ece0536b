import type { Reference } from '../model/resource.ts';
import type { Account } from '../wire/accounts.ts';
import type { TypeStream } from './type-stream.ts';

/** The types that others refer to, and who does. */
export const referring: ReadonlyMap<string, readonly string[]> = new Map([
  ['cds', ['lds', 'srds', 'rds', 'vhds', 'ecds']],
  ['eds', ['cds']],
  ['rds', ['lds', 'srds']],
  ['sds', ['cds', 'lds', 'ecds']],
  ['ecds', ['lds', 'srds', 'rds', 'vhds']],
]);

/** Types of which resources refer to others. */
export const referringTypes: ReadonlySet<string> = new Set([...referring.values()].flat());

/** One type of a client, as other types wait for it. */
export type OrderedType = Pick<TypeStream, 'info' | 'subscription' | 'resend'>;

/** What has a type of one client: the stream of a service of a single type. */
export interface Participant {
  readonly types: readonly OrderedType[];
  /** Another stream of the client has heard something: what waits for that may go. */
  resumeWaiting(): void;
}

/** What waits for others looks at all of them. Further streams of the client, or polls, wait for these no more. */
export const mostParticipants = 1000;

/** The names of a type that a client polls and whose answer it has accepted; undefined: it does not poll the type. */
export type AcceptedNames = (short: string) => ReadonlySet<string> | undefined;

/** What one client is told, on one ADS stream, on streams of single types, or in answers to its polls. */
export class Conversation {
  /** An Envoy has a stream for each cluster's endpoints. Empty on ADS. */
  readonly participants = new Set<Participant>();
  /** Of the participants, those that go on when another stream hears something. */
  readonly #waiting = new Set<Participant>();
  /** Clusters were sent that the client has not accepted yet: until then changed routes wait. 0: all are. */
  warmingUntil = 0;
  /** What those clusters need, for each response. None on ADS: there they are accepted when they are warm. */
  readonly warmsWith: (readonly Reference[])[] = [];
  /** So many of the last of them are accepted. */
  #settled = 0;
  /** Routes were sent although the clusters before them are not accepted, and that was told. */
  toldWarming = false;
  /** All of an ADS stream, or of a client that polls. */
  readonly #own: readonly OrderedType[];
  /** Of the participants, by short name. */
  readonly #byType = new Map<string, Set<OrderedType>>();

  readonly #polled: AcceptedNames | undefined;
  /** Its last participant has gone. */
  readonly #over: (() => void) | undefined;

  /** `polled`: of a client that polls. */
  constructor(own: readonly OrderedType[] = [], polled?: AcceptedNames, over?: () => void) {
    this.#own = own;
    this.#polled = polled;
    this.#over = over;
  }

  /** The client accepts clusters before they are warm: it asks for what they need elsewhere. */
  get asksApart(): boolean {
    return this.participants.size > 0 || this.#polled !== undefined;
  }

  /** What the client has of a type: several times if streams have some names each. */
  of(short: string): readonly OrderedType[] {
    if (this.participants.size === 0) return this.#own.filter(({ info }) => info.short === short);
    return [...(this.#byType.get(short) ?? [])];
  }

  /** Whether the client has nothing but clusters, as far as something may refer to them. */
  get hasClustersOnly(): boolean {
    if (this.participants.size === 0) return this.#own.length < 2;
    return referringTypes.keys().every((short) => short === 'cds' || !this.#byType.has(short));
  }

  /** Of what clusters need, forgets what the client has accepted. False: some is left. */
  settle(): boolean {
    const polled = new Map<string, ReadonlySet<string> | undefined>();
    for (let last = this.warmsWith.at(-1); last !== undefined; last = this.warmsWith.at(-1)) {
      for (const wanted of last.slice(this.#settled)) {
        if (!this.#hasAccepted(wanted, polled)) return false;
        this.#settled++;
      }
      this.warmsWith.pop();
      this.#settled = 0;
    }
    return true;
  }

  areWarm(): void {
    this.warmingUntil = 0;
    this.warmsWith.length = 0;
    this.#settled = 0;
    this.toldWarming = false;
  }

  /** Whether the client has accepted a resource that it does not ask for on ADS. `known`: what it polls, by short name. */
  #hasAccepted(wanted: Reference, known: Map<string, ReadonlySet<string> | undefined>): boolean {
    const short = wanted.slice(0, wanted.indexOf(' '));
    const name = wanted.slice(short.length + 1);
    if (this.#polled !== undefined) {
      if (!known.has(short)) known.set(short, this.#polled(short));
      return known.get(short)?.has(name) !== false;
    }
    return (
      this.#byType
        .get(short)
        ?.values()
        .some(
          ({ subscription }) => subscription?.has(name) === true && !subscription.responses.awaitsAnswer,
        ) === true
    );
  }

  add(participant: Participant): void {
    this.participants.add(participant);
    for (const type of participant.types) {
      const known = this.#byType.get(type.info.short) ?? new Set();
      this.#byType.set(type.info.short, known.add(type));
    }
  }

  remove(participant: Participant): void {
    this.participants.delete(participant);
    this.#waiting.delete(participant);
    for (const type of participant.types) {
      const known = this.#byType.get(type.info.short);
      if (known?.delete(type) === true && known.size === 0) this.#byType.delete(type.info.short);
    }
    if (this.participants.size === 0) this.#over?.();
  }

  /** Whether a participant goes on when another has heard something. */
  waits(participant: Participant, isWaiting: boolean): void {
    if (!isWaiting) this.#waiting.delete(participant);
    else if (this.participants.has(participant)) this.#waiting.add(participant);
  }

  resumeOthers(participant: Participant): void {
    for (const other of [...this.#waiting]) if (other !== participant) other.resumeWaiting();
  }
}

/**
 * The conversations with clients that have a stream for each type: those of one node at one peer. Clients that share a
 * node id behind one address are taken for one: what they wait for has bounds.
 */
export class Conversations {
  readonly #all = new Map<Account, Map<string, Conversation>>();

  join(participant: Participant, account: Account, nodeId: string): Conversation {
    const ofPeer = this.#all.get(account) ?? new Map<string, Conversation>();
    this.#all.set(account, ofPeer);
    let conversation = ofPeer.get(nodeId);
    if (conversation === undefined || conversation.participants.size >= mostParticipants) {
      const created = new Conversation([], undefined, () => {
        // One that was full is not there any more.
        if (ofPeer.get(nodeId) !== created) return;
        ofPeer.delete(nodeId);
        if (ofPeer.size === 0) this.#all.delete(account);
      });
      ofPeer.set(nodeId, created);
      conversation = created;
    }
    conversation.add(participant);
    return conversation;
  }
}
