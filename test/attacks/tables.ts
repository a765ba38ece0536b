import { admin } from './admin.ts';
import { frames } from './frames.ts';
import { grpc } from './grpc.ts';
import { hpack } from './hpack.ts';
import { rest } from './rest.ts';
import { status } from './status.ts';
import type { Attack } from './support/attack.ts';
import { tls } from './tls.ts';
import { xds } from './xds.ts';

/** Every attack that needs no more than an address. */
export const tables: Readonly<Record<string, readonly Attack[]>> = {
  frames,
  hpack,
  grpc,
  xds,
  status,
  admin,
  rest,
  tls,
};
