import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import type { Scope } from '../../src/model/holds.ts';
import { nameKey } from '../../src/model/holds.ts';
import type { PendingName } from '../../src/model/rollout.ts';
import { matching } from '../../src/releases/waiting.ts';
import { type } from '../support/in-memory-relay.ts';

const pending = (short: string, masked?: PendingName['masked']): PendingName => ({
  type: type(short),
  name: resourceName('a'),
  key: nameKey(type(short), resourceName('a')),
  upstream: 'central',
  since: 0,
  removed: false,
  masked,
  seen: masked === undefined,
  queued: masked === 'queued',
});

const taken = 'it was released or discarded before, or upstream has taken it back';
const frozen = 'what upstream says is frozen: unfreeze it first';

describe('what an operator means by release and discard', () => {
  const rows: readonly {
    readonly title: string;
    readonly names: readonly PendingName[];
    readonly filter?: Scope;
    readonly gives: number | string;
  }[] = [
    { title: 'nothing', names: [], gives: `nothing waits: ${taken}` },
    { title: 'what canaries see', names: [pending('cds'), pending('lds', 'frozen')], gives: 1 },
    {
      title: 'another type',
      names: [pending('cds')],
      filter: { type: type('lds') },
      gives: `nothing of lds waits: ${taken}`,
    },
    { title: 'what is frozen', names: [pending('cds', 'frozen')], gives: `nothing waits: ${frozen}` },
    { title: 'after a rollback', names: [pending('cds', 'rolledBack')], gives: `nothing waits: ${frozen}` },
    {
      title: 'what was discarded',
      names: [pending('cds', 'discarded')],
      gives: 'nothing waits: what upstream says was discarded, until it says something else',
    },
    {
      title: 'a type that is frozen, while another one waits',
      names: [pending('cds'), pending('lds', 'frozen')],
      filter: { type: type('lds') },
      gives: `nothing of lds waits: ${frozen}`,
    },
  ];
  for (const { title, names, filter = {}, gives } of rows) {
    it(title, () => {
      const found = matching(names, filter);
      expect(found.ok ? found.value.length : found.error).to.equal(gives);
    });
  }
});
