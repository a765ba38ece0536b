import { Counter, Gauge, type Registry } from 'prom-client';
import { z } from 'zod';
import { shorten } from '../model/text.ts';

/** Whose it is, as labels: what a listener presents, or what the relay presents to an upstream or to its siblings. */
const owner = z.union([
  z.strictObject({ listener: z.string() }),
  z.strictObject({ upstream: z.string() }),
  z.strictObject({ upstream: z.string(), siblings: z.literal('true') }),
]);
export type CertificateOwner = Readonly<z.infer<typeof owner>>;

/** Plain data. Times are milliseconds since the epoch. */
export const certificateState = z.object({
  owner,
  /** Of an upstream without a client certificate it is the file of the authorities that is followed. */
  kind: z.enum(['certificate', 'ca']),
  file: z.string(),
  /** Of the one in force. Left out: there is none. */
  expiresAt: z.number().optional(),
  /** New files that are refused; the pair before stays in force. */
  refused: z.object({ error: z.string(), since: z.number() }).optional(),
});
export type CertificateState = Readonly<z.infer<typeof certificateState>>;

/**
 * `certificate of xds`, `client certificate for upstream central`, `CA file for upstream central`: to an upstream the
 * relay shows its own certificate, which is not the control plane's. Several processes have the certificate of one
 * listener.
 */
export function certificateText(all: readonly CertificateState[]): string {
  return Array.from(
    Map.groupBy(all, wordsFor),
    ([words, own]) =>
      `${words} ${listed.format(new Set(own.map(({ owner: of }) => shorten(ownerText(of), 60))))}`,
  ).join(' and ');
}
function wordsFor({ kind, owner: of }: CertificateState): string {
  if (kind === 'ca') return 'CA file for';
  return 'listener' in of ? 'certificate of' : 'client certificate for';
}
const listed = new Intl.ListFormat('en');

function ownerText(of: CertificateOwner): string {
  if ('listener' in of) return of.listener;
  return 'siblings' in of ? `the siblings of ${of.upstream}` : `upstream ${of.upstream}`;
}

/** The certificates that are followed: one list for metrics and for problems. */
export class Certificates {
  readonly #followed = new Map<string, FollowedCertificate>();

  constructor(registry: Registry) {
    const all = this.#followed;
    const labels = ['listener', 'upstream', 'siblings'];
    const gauge = (
      name: string,
      help: string,
      value: (of: FollowedCertificate) => number | undefined,
    ): void => {
      const collect = function (this: Gauge): void {
        this.reset();
        for (const one of all.values()) {
          const shown = value(one);
          if (shown !== undefined) this.set(one.owner, shown);
        }
      };
      registry.registerMetric(
        new Gauge({
          name: `distributary_certificate_${name}`,
          help,
          labelNames: labels,
          registers: [],
          collect,
        }),
      );
    };
    gauge(
      'expiry_timestamp_seconds',
      'When the certificate expires that a listener presents, or the relay presents to an upstream, in seconds since the epoch',
      ({ expiresAt }) => (expiresAt === undefined ? undefined : expiresAt / 1000),
    );
    gauge(
      'last_reload_successful',
      '1 while the certificate, key and ca in force are those in the files, 0 after new files were refused',
      ({ refusal }) => (refusal === undefined ? 1 : 0),
    );
    registry.registerMetric(
      new Counter({
        name: 'distributary_certificate_reloads_total',
        help: 'Changed files of a certificate, key or ca that were taken (success) or refused. Each worker reads those of xds and rest',
        labelNames: [...labels, 'result'],
        registers: [],
        collect() {
          this.reset();
          for (const { owner: of, reloads } of all.values())
            for (const [result, count] of Object.entries(reloads)) this.inc({ ...of, result }, count);
        },
      }),
    );
  }

  /** Takes the place of the owner's one before, and its counts. */
  follow(of: CertificateOwner, file: string, kind: CertificateState['kind']): FollowedCertificate {
    const key = JSON.stringify(of);
    const made = new FollowedCertificate(of, file, kind, this.#followed.get(key)?.reloads, () => {
      if (this.#followed.get(key) === made) this.#followed.delete(key);
    });
    this.#followed.set(key, made);
    return made;
  }

  states(): CertificateState[] {
    return [...this.#followed.values()].map(({ owner: of, kind, file, expiresAt, refusal }) => ({
      owner: of,
      kind,
      file,
      expiresAt,
      refused: refusal,
    }));
  }
}

export class FollowedCertificate {
  readonly owner: CertificateOwner;
  readonly file: string;
  readonly kind: CertificateState['kind'];
  /** From 0: increase() does not see a series' first increment. */
  readonly reloads: { success: number; refused: number };
  expiresAt: number | undefined;
  refusal: { readonly error: string; readonly since: number } | undefined;
  /** No more metrics and problems of it. */
  readonly stop: () => void;

  constructor(
    of: CertificateOwner,
    file: string,
    kind: CertificateState['kind'],
    reloads: FollowedCertificate['reloads'] | undefined,
    stop: () => void,
  ) {
    this.owner = of;
    this.file = file;
    this.kind = kind;
    this.reloads = { success: 0, refused: 0, ...reloads };
    this.stop = stop;
  }

  refused(error: string, at: number): void {
    this.reloads.refused++;
    this.refusal = { error, since: this.refusal?.since ?? at };
  }
}
