import { shorten } from '../model/text.ts';

/** Whose it is, as labels: what a listener presents, or what the relay presents to an upstream or to its siblings. */
export type CertificateOwner =
  | { readonly listener: string }
  | { readonly upstream: string; readonly siblings?: 'true' };

/** Plain data, for another process too. Times are milliseconds since the epoch. */
export type CertificateState = Omit<FollowedCertificate, 'reloads' | 'refuse' | 'stop'>;

/**
 * `certificate of listener xds`, `client certificate for upstream central`, `CA file for upstream central`: to an upstream the
 * relay shows its own certificate, which is not the control plane's. Several processes have the certificate of one
 * listener.
 */
export function certificateText(all: readonly CertificateState[]): string {
  return Array.from(
    Map.groupBy(all, wordsFor),
    ([words, own]) => `${words} ${listed(new Set(own.map(({ owner: of }) => shorten(ownerText(of), 60))))}`,
  ).join(' and ');
}
function wordsFor({ kind, owner: of }: CertificateState): string {
  if (kind === 'ca') return 'CA file for';
  return 'listener' in of ? 'certificate of' : 'client certificate for';
}
/** Not made before it is needed: the data of a language are megabytes. */
const listed = (words: Iterable<string>): string => new Intl.ListFormat('en').format(words);

function ownerText(of: CertificateOwner): string {
  if ('listener' in of) return `listener ${of.listener}`;
  return of.siblings ? `the siblings of ${of.upstream}` : `upstream ${of.upstream}`;
}

export interface FollowedCertificate {
  readonly owner: CertificateOwner;
  /** Of an upstream without a client certificate it is the file of the authorities that is followed. */
  readonly kind: 'certificate' | 'ca';
  readonly file: string;
  /** Of the one in force. Left out: there is none. */
  expiresAt?: number | undefined;
  validFrom?: number | undefined;
  /** New files that are refused; the pair before stays in force. */
  refused?: { readonly error: string; readonly since: number } | undefined;
  /** From 0: increase() does not see a series' first increment. */
  readonly reloads: { success: number; refused: number };
  readonly refuse: (error: string, at: number) => void;
  /** No more metrics and problems of it. */
  readonly stop: () => void;
}

/** The certificates that are followed: one list for metrics and for problems. */
export class Certificates {
  readonly #followed = new Map<string, FollowedCertificate>();

  /** Takes the place of the owner's one before, and its counts. */
  follow(of: CertificateOwner, file: string, kind: CertificateState['kind']): FollowedCertificate {
    const key = JSON.stringify(of);
    const followed: FollowedCertificate = {
      owner: of,
      kind,
      file,
      reloads: { success: 0, refused: 0, ...this.#followed.get(key)?.reloads },
      refuse(error, at) {
        followed.reloads.refused++;
        followed.refused = { error, since: followed.refused?.since ?? at };
      },
      stop: () => {
        if (this.#followed.get(key) === followed) this.#followed.delete(key);
      },
    };
    this.#followed.set(key, followed);
    return followed;
  }

  followed(): readonly FollowedCertificate[] {
    return [...this.#followed.values()];
  }

  states(): CertificateState[] {
    return this.followed().map(({ reloads: _reloads, refuse: _refuse, stop: _stop, ...state }) => state);
  }
}
