import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  type Change,
  type DiffResponse,
  type DiffSideSchema,
  type HistoryResponse,
  type NameDifference,
} from '../gen/distributary/admin/v1/changes_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { printable } from '../model/text.ts';
import { formatBytes, verdictText } from '../observe/format.ts';
import { textTable, type View } from '../observe/text-table.ts';
import { printableYaml } from '../observe/yaml-text.ts';
import {
  count,
  parameters,
  readCount,
  text,
  texts,
  toggle,
  type,
  UsageError,
  type ValuesOf,
} from './command.ts';
import { answer, everyPart, relayCommand } from './relay-command.ts';

/** How many names of a change a line shows. */
const shownNames = 3;

export const history = relayCommand({
  name: 'history',
  does: 'lists changes',
  about:
    'Lists changes, the newest first. VERDICT says where a change is in its waves, or where it ended. ACCEPTED and REJECTED count the streams that have answered the change. diff and rollback take these revisions and names.',
  flags: {
    type: type('only this type'),
    name: text('N', 'only changes of this resource'),
    limit: count('N', 'only the newest N', 0),
  },
  exit: '0, or 1 if the relay does not answer.',
  ask:
    ({ limit, ...asked }) =>
    async ({ rpc }) => {
      const response = await everyPart('changes', 'nextBefore', (before, listed) =>
        rpc.history({ ...asked, before, limit: limit === 0 ? 0 : limit - listed }),
      );
      const all = asked.type === '' && asked.name === '';
      return answer(response, (view) => historyText(response, all, view));
    },
});

/** `all`: no changes are left out. */
function historyText({ changes }: HistoryResponse, all: boolean, view: View): string {
  if (changes.length === 0) return all ? 'nothing has changed yet' : 'no change of this is known';
  return textTable(
    changes,
    [
      'revision',
      'since',
      ['UPSTREAM', ({ upstream }) => upstream || '(operator)', 'wide'],
      'type',
      ['VERDICT', verdictText],
      'accepted',
      'rejected',
      ['BODIES', ({ bodies }) => (bodies ? 'yes' : 'no'), 'wide'],
      ['SIZE', ({ bytes }) => formatBytes(Number(bytes)), 'wide'],
      ['CHANGED', namesText],
    ],
    view,
  );
}

const signs: ReadonlyMap<string, string> = new Map([
  ['ADDED', '+'],
  ['REMOVED', '-'],
  ['CHANGED', '~'],
]);

function namesText({ names, added, changed, removed, reason }: Change): string {
  const shown = names
    .slice(0, shownNames)
    .map(({ name, change }) => `${signs.get(change) ?? ''}${printable(name)}`);
  const more = added + changed + removed - shown.length;
  const said = reason === '' ? '' : ` (${printable(reason)})`;
  return `${shown.join(' ')}${more > 0 ? ` and ${more} more` : ''}${said}`;
}

const flags = {
  from: text('REV', 'the older revision (see history); with --to, the same as diff FROM TO'),
  to: text('REV', 'the revision to compare it with'),
  pending: toggle('what only canaries have, against what everybody has, and what is queued behind it'),
  client: texts('ID', 'given twice: what these two clients were sent'),
  param: parameters('what a client with these parameters gets; may be repeated'),
  against: parameters('what a client with these gets; may be repeated'),
  type: type('only this type'),
  name: text('N', 'only this resource, field by field'),
} as const;

export const diff = relayCommand({
  name: 'diff',
  does: 'shows what differs between two revisions, clients or parameter sets',
  about:
    'Shows which resources differ, and with --name which of their fields, as YAML. Secrets are not shown.',
  usage:
    '(REV REV | --from REV --to REV | --pending | --client ID --client ID | --param KEY=VALUE... --against KEY=VALUE...)',
  operands: { most: 2, words: [] },
  flags,
  exit: '0; 1 if there is no such revision or client, or if the relay does not answer.',
  ask: ({ type, name, ...given }, revisions) => {
    const sides = readSides(given, revisions);
    if (!sides.ok) return new UsageError(sides.error);
    return async ({ rpc }) => {
      const { from, to } = sides.value;
      const asked = { from: { of: from }, to: { of: to }, type, name };
      const response = await everyPart('differences', 'nextOffset', (offset) =>
        rpc.diff({ ...asked, offset }),
      );
      return answer(response, (view) => diffText(response, view));
    };
  },
});

type Side = NonNullable<MessageInitShape<typeof DiffSideSchema>['of']>;

type Sides = Readonly<Record<'from' | 'to', Side>>;

type Given = Omit<ValuesOf<typeof flags>, 'type' | 'name'>;

const expected =
  'expected REV REV, --from REV --to REV, --pending, --client ID --client ID, or --param KEY=VALUE --against KEY=VALUE';

function readSides(given: Given, revisions: readonly string[]): Result<Sides> {
  const { from, to, pending, client, param, against } = given;
  const byParameters = Object.keys(param).length + Object.keys(against).length > 0;
  const byFlags = from !== '' || to !== '';
  const kinds = [revisions.length > 0, byFlags, pending, client.length > 0, byParameters];
  const count = kinds.filter(Boolean).length;
  if (count !== 1) return fail(`${count === 0 ? 'nothing to compare' : 'too much to compare'}: ${expected}`);
  if (pending) return ok({ from: { case: 'released', value: true }, to: { case: 'pending', value: true } });
  if (client.length > 0) return clientSides(client);
  if (byParameters) {
    return ok({
      from: { case: 'parameters', value: { values: param } },
      to: { case: 'parameters', value: { values: against } },
    });
  }
  if (byFlags) return revisionSides(['--from', from], ['--to', to]);
  const [first = '', second = ''] = revisions;
  return revisionSides(['the first revision', first], ['the second revision', second]);
}

type Said = readonly [name: string, revision: string];

function revisionSides(from: Said, to: Said): Result<Sides> {
  const before = readRevision(from);
  if (!before.ok) return before;
  const after = readRevision(to);
  if (!after.ok) return after;
  return ok({
    from: { case: 'revision', value: before.value },
    to: { case: 'revision', value: after.value },
  });
}

const readRevision = ([name, revision]: Said): Result<number> =>
  revision === '' ? fail(`${name} is missing: ${expected}`) : readCount(revision, name);

function clientSides(clients: readonly string[]): Result<Sides> {
  const [from, to] = clients;
  if (from === undefined || to === undefined || clients.length !== 2) {
    return fail(`--client: expected two, got ${clients.length}`);
  }
  return ok({ from: { case: 'client', value: from }, to: { case: 'client', value: to } });
}

function diffText({ differences, total }: DiffResponse, view: View): string {
  if (total === 0) return 'no differences';
  const more = total - differences.length;
  const queued = differences.filter((one) => one.queued);
  const parts = [
    listText(
      differences.filter((one) => !one.queued),
      view,
    ),
    ...(queued.length === 0 ? [] : [queuedText, listText(queued, view)]),
    more > 0 ? `and ${more} more` : '',
  ];
  return parts.filter((part) => part !== '').join('\n\n');
}

const queuedText = 'queued behind it: nobody has this before the change that is judged has ended';

function listText(differences: readonly NameDifference[], view: View): string {
  const how = ({ change }: NameDifference): string => change.toLowerCase();
  const parts = [textTable(differences, [['CHANGE', how], 'type', 'name'], view)];
  for (const { variants } of differences) {
    for (const { constraints, change, yaml } of variants) {
      const of = constraints === '' ? '' : ` of ${printable(constraints)}`;
      parts.push(`# ${change.toLowerCase()}${of}\n${printableYaml(yaml.trimEnd())}`);
    }
  }
  return parts.join('\n\n');
}
