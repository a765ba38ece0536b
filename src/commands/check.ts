import { type CheckResponse, CheckResponseSchema } from '../gen/distributary/admin/v1/rollout_pb.ts';
import { printable } from '../model/printable.ts';
import { required, text } from './command.ts';
import { answer, relayCommand } from './relay-command.ts';

const codes: Readonly<Record<string, number>> = { GOOD: 0, BAD: 1 };

export const check = relayCommand({
  name: 'check',
  does: 'asks a check of the rollout now',
  about: `Asks one of rollout.checks now and prints what it says. This does not count for a change that waits.`,
  flags: { name: required(text('NAME', 'one of rollout.checks')) },
  exit: '0 GOOD; 1 BAD, or the relay does not answer; 2 UNKNOWN.',
  ask:
    ({ name }) =>
    async ({ rpc }) => {
      const response = await rpc.check({ name });
      return {
        ...answer(CheckResponseSchema, response, () => checkText(response)),
        code: codes[response.check?.state ?? ''] ?? 2,
      };
    },
});

const checkText = ({ check: said }: CheckResponse): string =>
  said === undefined ? '' : printable(`${said.name}: ${said.state}: ${said.reason}`);
