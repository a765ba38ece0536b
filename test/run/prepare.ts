import { globSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { h2specBinary } from '../attacks/support/h2spec.ts';
import { chromiumBinary } from '../e2e/support/chromium.ts';
import { controlPlaneBinary, olderControlPlaneBinary } from '../e2e/support/controlplane.ts';
import { envoyBinary } from '../e2e/support/envoy-binary.ts';
import { fleetPrograms } from '../e2e/support/fleet.ts';
import { goBinary } from '../e2e/support/go.ts';
import { grpcioClient } from '../e2e/support/grpcio.ts';
import { downloads } from '../e2e/support/paths.ts';
import { prometheusBinaries } from '../e2e/support/prometheus.ts';
import { bundleRelay } from './bundle.ts';
import { type Job, waits } from './jobs.ts';
import { root } from './report.ts';

/** Its tests start processes. */
export const needsPrograms = ({ files }: Job): boolean => files.some((file) => waits.test(file));

/**
 * Fetches and builds what tests run beside the relay, so that no two of them do it at once. For the environment of their
 * processes.
 */
export async function prepare(): Promise<Readonly<Record<string, string>>> {
  console.log(`getting Envoy, clients, control planes and Prometheus; downloads are kept in ${downloads}`);
  const recipes = globSync('deploy/recipes/*/go.mod', { cwd: root }).flatMap((module) =>
    globSync(`${dirname(module)}/*/main.go`, { cwd: root }).map((main) =>
      goBinary(basename(dirname(main)), `${root}/${dirname(module)}`),
    ),
  );
  // What cannot be had is said by the tests that need it.
  await Promise.all([
    envoyBinary(),
    grpcioClient(),
    prometheusBinaries(),
    chromiumBinary(),
    h2specBinary(),
    controlPlaneBinary(),
    olderControlPlaneBinary(),
    goBinary('grpcclient'),
    fleetPrograms(),
    ...recipes,
  ]);
  return { TESTS_RELAY: await bundleRelay(), TESTS_ARE_PREPARED: 'true' };
}
