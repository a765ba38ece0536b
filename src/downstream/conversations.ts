import { type Reference, reference } from '../model/resource.ts';
import type { Account } from '../wire/accounts.ts';
import type { TypeStream } from './type-stream.ts';

/** Types of which resources refer to others. */
export const referringTypes: ReadonlySet<string> = new Set(['cds', 'lds', 'srds', 'rds', 'vhds', 'ecds']);

/** What has a type of one client: the stream of a service of a single type. */
export interface Participant {
  readonly types: readonly TypeStream[];
  /** Another stream of the client has heard something: what waits for that may go. */
  resumeWaiting(): void;
}

/** Each of them looks at all others when it ends. Further streams of the client wait for these no more. */
const mostParticipants = 1000;

const refers = ({ info }: TypeStream): boolean => referringTypes.has(info.short);

/** What one client is told, on one ADS stream or on streams of single types. */
export class Conversation {
  /** An Envoy has a stream for each cluster's endpoints. Empty on ADS. */
  readonly participants = new Set<Participant>();
  /** Clusters were sent that the client has not accepted yet: until then changed routes wait. 0: all are. */
  warmingUntil = 0;
  /** What those clusters need, and is not here on ADS: there they are accepted when they are warm. */
  warmsWith: readonly Reference[] = [];
  /** Routes were sent although the clusters before them are not accepted, and that was told. */
  toldWarming = false;
  /** Those that may refer to others, and all of an ADS stream. */
  #types: readonly TypeStream[];

  constructor(types: readonly TypeStream[] = []) {
    this.#types = types;
  }

  get types(): readonly TypeStream[] {
    return this.#types;
  }

  /** Whether the client has accepted a resource, on a stream that is not of ADS. */
  hasAccepted(wanted: Reference): boolean {
    return this.participants.values().some(({ types }) =>
      types.some(({ info, subscription }) => {
        if (subscription === undefined || !wanted.startsWith(reference(info.short, ''))) return false;
        return subscription.has(wanted.slice(info.short.length + 1)) && !subscription.responses.awaitsAnswer;
      }),
    );
  }

  add(participant: Participant): void {
    this.participants.add(participant);
    this.#readTypes(participant);
  }

  remove(participant: Participant): void {
    this.participants.delete(participant);
    this.#readTypes(participant);
  }

  #readTypes(changed: Participant): void {
    if (!changed.types.some(refers)) return;
    this.#types = [...this.participants].flatMap(({ types }) => types.filter(refers));
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
    const known = ofPeer.get(nodeId);
    const isFull = (known?.participants.size ?? 0) >= mostParticipants;
    const conversation = known === undefined || isFull ? new Conversation() : known;
    this.#all.set(account, ofPeer.set(nodeId, conversation));
    conversation.add(participant);
    return conversation;
  }

  leave(conversation: Conversation, participant: Participant, account: Account, nodeId: string): void {
    conversation.remove(participant);
    const ofPeer = this.#all.get(account);
    // One that was full is not there any more.
    if (ofPeer?.get(nodeId) !== conversation || conversation.participants.size > 0) return;
    ofPeer.delete(nodeId);
    if (ofPeer.size === 0) this.#all.delete(account);
  }
}
