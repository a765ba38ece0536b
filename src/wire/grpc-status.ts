/** google.rpc.Code, by its names in the gRPC documentation. */
export const Code = {
  OK: 0,
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;
export type Code = (typeof Code)[keyof typeof Code];

const names = new Map<number, string>(Object.entries(Code).map(([name, code]) => [code, name]));
const codes = new Map<number, Code>(Object.values(Code).map((code) => [code, code]));

/** A code of a peer; what is none of gRPC's counts as UNKNOWN, as its specification says. */
export function codeOf(number: number): Code {
  return codes.get(number) ?? Code.UNKNOWN;
}

export function codeName(code: Code): string {
  return names.get(code) ?? String(code);
}

/** How an RPC ends: grpc-status and grpc-message. */
export interface GrpcStatus {
  readonly code: Code;
  readonly message: string;
}
