import { setTimeout as wait } from 'node:timers/promises';
import { create } from '@bufbuild/protobuf';
import { type StaleUpstream, WaitRequestSchema } from '../gen/distributary/admin/v1/delivery_pb.ts';
import { resourceName, type TypeUrl } from '../model/brand.ts';
import { systemClock } from '../model/clock.ts';
import { nameKey } from '../model/holds.ts';
import { isCollection } from '../model/selection.ts';
import { TimeSlices } from '../model/time-slices.ts';
import { typeInfo } from '../model/types.ts';
import { rpcError } from '../wire/connect.ts';
import { Code } from '../wire/grpc-status.ts';
import type { InspectedProcess, inspectChanges } from './changes.ts';
import {
  type Acceptance,
  type AcceptanceQuery,
  acceptanceOf,
  heldBack,
  isKnown,
  mergeAcceptances,
  NOBODY_MISSING,
  onlyTypeOf,
  type PastNames,
  pastNames,
  whyHeld,
} from './missing.ts';
import { type WaitQuery, waitQuery } from './requests.ts';
import type { Answer, Call, Inspector, Plain } from './service.ts';

/** How often clients are looked at, in milliseconds: at first, and at last. */
const firstPauseMs = 50;
const longestPauseMs = 1000;
/** Each of them looks at all clients again and again. */
const mostWaits = 100;

/** Wait: what clients were sent and have accepted. */
export function inspectDelivery(
  { relay, rollout, staleness, history, clients }: InspectedProcess,
  { change: changeOf }: Pick<ReturnType<typeof inspectChanges>, 'change'>,
): Inspector['wait'] {
  const slices = new TimeSlices(systemClock);
  let waits = 0;

  return async (request, call) => {
    const query = waitQuery(request);
    if (waits >= mostWaits) {
      const message = `${mostWaits} calls of Wait are open, the maximum: try again later`;
      throw rpcError({ code: Code.RESOURCE_EXHAUSTED, message });
    }
    waits++;
    try {
      return await waitFor(query, call);
    } finally {
      waits--;
    }
  };

  async function waitFor(query: WaitQuery, call: Call): Promise<Answer<'wait'>> {
    const { signal } = call;
    const deadline = systemClock.monotonic() + query.timeoutMs;
    const past = await slices.run((pace) => pastNames(history, query.names, pace));
    const isMeant = (type: TypeUrl): boolean => query.type === undefined || query.type === type;
    const unseen = new Set(query.names);
    for (const [type, had] of past) if (isMeant(type)) for (const name of had) unseen.delete(name);
    for (let pause = firstPauseMs; ; pause = Math.min(2 * pause, longestPauseMs)) {
      const answer = await accepted();
      const left = deadline - systemClock.monotonic();
      if (answer.accepted || left <= 0 || signal.aborted) return answer;
      await wait(Math.min(pause, left), undefined, { signal, ref: false }).catch(() => undefined);
    }

    async function accepted(): Promise<Answer<'wait'>> {
      const { wave } = query;
      const what = wanted(query);
      const held = wave === undefined ? heldBack(relay, what) : heldBackIn(wave, what);
      const misspelled = await unknown(query, unseen);
      const said = await acceptance(what, past, call);
      // Who is in a later wave has not got it yet.
      const counted = wave === undefined ? said : { ...NOBODY_MISSING, clients: said.clients };
      const found = mergeAcceptances([held, misspelled, counted]);
      const staleUpstreams = stale(what);
      const isAccepted =
        found.missing === 0 &&
        found.clients >= query.minClients &&
        (query.allowStale || staleUpstreams.length === 0);
      return { accepted: isAccepted, ...found, staleUpstreams };
    }
  }

  /** What the revision changed, if there is one. Looked up again each time: an operator may discard it meanwhile. */
  function wanted({ type, names, revision }: WaitQuery) {
    if (revision === undefined) return { type, names, released: new Set<string>() };
    const change = changeOf(revision, names);
    const changed = new Set<string>(change.names.map(({ name }) => name));
    const given = change.names.filter(({ verdict }) => verdict === 'RELEASED');
    const asked = names.size === 0 ? changed : changed.intersection(names);
    if ((type !== undefined && type !== change.type) || asked.size === 0) {
      const { short } = typeInfo(change.type);
      const what = changed.size === 0 ? 'changed nothing' : `did not change that: it changed ${short}`;
      const message = `revision ${revision} ${what}`;
      throw rpcError({ code: Code.INVALID_ARGUMENT, message });
    }
    const released = new Set<string>(given.map(({ name }) => name));
    return { type: change.type, names: asked, released };
  }

  /** What waits, as long as the clients of the waves up to this one have not accepted it. */
  function heldBackIn(wave: number, what: ReturnType<typeof wanted>): Acceptance {
    const { changes: waiting, bakes } = rollout.report();
    const changeOf = new Map(
      waiting.flatMap((change) => change.names.map(({ type, name }) => [nameKey(type, name), change])),
    );
    return heldBack(relay, what, (pending) => {
      const change = changeOf.get(nameKey(pending.type, pending.name));
      if (change === undefined) return whyHeld(pending);
      const { state, wave: at, acceptedWave } = change;
      if (state.kind !== 'HELD' && acceptedWave >= wave) return '';
      const why = state.reason === '' ? 'not all of its clients have accepted it' : state.reason;
      return `it is in wave ${at} of ${bakes.length}: ${why}`;
    });
  }

  async function acceptance(query: AcceptanceQuery, past: PastNames, call: Call): Promise<Acceptance> {
    const asked = clients();
    const names = [...query.names];
    const type = query.type ?? (await slices.run((pace) => onlyTypeOf(relay, query.names, past, pace)));
    const request = create(WaitRequestSchema, { type: type ?? '', names, minClients: 0 });
    if (!asked.inWorkers) return asked.wait(request, call);
    // First those that feed the workers: what a worker does not have yet, its clients cannot miss.
    const feeds = await acceptanceOf(relay, { ...query, type }, slices, true);
    const found = await asked.wait(request, call);
    if (feeds.missing === 0 || found.missing > 0) return found;
    const { missing, missingClients } = feeds;
    for (const row of missingClients)
      Object.assign(row, { client: '', node: '', why: `a worker: ${row.why}` });
    return { clients: found.clients, missing, missingClients };
  }

  /** Names that nobody has had, has asked for or removed: they are misspelled. There may be 20,000 of them. */
  async function unknown(
    { type, revision, minClients }: WaitQuery,
    unseen: Set<string>,
  ): Promise<Acceptance> {
    if (revision !== undefined || minClients === 0) return NOBODY_MISSING;
    await slices.run(async (pace) => {
      for (const name of unseen) {
        await pace.yieldIfDue();
        if (isKnown(relay, type, resourceName(name))) unseen.delete(name);
      }
    });
    const short = type === undefined ? '' : typeInfo(type).short;
    const why = 'no upstream has it, no client subscribes to it by name, and it was not removed';
    const misspelled = { client: '', node: '', type: short, state: 'MISSING', why };
    const rows = Array.from(unseen, (name) => ({ ...misspelled, name }));
    return { clients: 0, missing: unseen.size, missingClients: rows };
  }

  /** Upstreams that what is asked for comes from, and that may be out of date. */
  function stale(query: AcceptanceQuery): Plain<StaleUpstream>[] {
    const all = staleness.stale;
    // Nearly always.
    if (all.length === 0) return [];
    const serving = servingUpstreams(query, all);
    return all.filter(({ name }) => serving.has(name));
  }

  /** Those that what clients ask for comes from; it looks no further than until all of `among` are found. */
  function servingUpstreams({ type, names }: AcceptanceQuery, among: readonly Plain<StaleUpstream>[]) {
    const serving = new Set<string | undefined>();
    if (type !== undefined) for (const name of names) serving.add(relay.servedBy(type, name));
    if (type !== undefined && names.size > 0) return serving;
    for (const { type: of, selector } of relay.views.interests.all()) {
      if (type !== undefined && of !== type) continue;
      if (names.size > 0 && !names.has(selector) && !isCollection(selector)) continue;
      serving.add(relay.servedBy(of, selector));
      if (among.every(({ name }) => serving.has(name))) break;
    }
    return serving;
  }
}
