import { UNCONSTRAINED } from '../model/constraints.ts';
import { type Holder, type Interest, type Transaction, transaction } from '../model/transaction.ts';
import { Code } from '../wire/grpc-status.ts';
import { encodeStatus } from '../wire/responses.ts';

const NO_HOLDER: Holder = { key: 'nobody', upstream: '', role: 'named' };

/** An authority, type or name that no upstream serves: an error, not silence (protocol §6). */
export function unclaimed(interest: Interest): Transaction {
  const { type, selector } = interest;
  const message =
    selector === ''
      ? 'a resource name may not be empty'
      : `no upstream is configured for ${selector} of ${type}`;
  const fault = {
    name: selector,
    constraints: UNCONSTRAINED,
    code: Code.NOT_FOUND,
    message,
    status: encodeStatus(Code.NOT_FOUND, message),
  };
  return transaction({ holder: NO_HOLDER, type, resourceErrors: [fault], resolved: [interest] });
}
