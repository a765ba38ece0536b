import type { Clock } from '../../src/model/clock.ts';
import { type AccountBounds, Accounts } from '../../src/wire/accounts.ts';
import type { PeerNames } from '../../src/wire/peer.ts';
import type { Peer } from '../../src/wire/server-stream.ts';
import { VirtualClock } from './virtual-clock.ts';

const none = Number.MAX_SAFE_INTEGER;

/** Accounts that bound only what is given. A turn ends when `defer` says so; left out: never. */
export function testAccounts(
  bounds: Partial<AccountBounds> = {},
  clock: Clock = new VirtualClock(),
  defer: (run: () => void) => void = () => {},
): Accounts {
  const all = { heldPerPeer: none, held: none, workPerSecond: none, changesPerSecond: none, ...bounds };
  return new Accounts(
    clock,
    () => all,
    () => false,
    defer,
  );
}

export function testPeer(names: Partial<PeerNames> = {}, accounts = testAccounts()): Peer {
  const known = { address: '127.0.0.1:1', unix: false, uriSans: [], dnsSans: [], ...names };
  return { ...known, account: accounts.of(known) };
}
