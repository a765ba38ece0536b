/** `npm run plan`: how many relays a fleet needs (docs/scale.md). */
import { runPlan } from './plan-command.ts';

const { out, err, code } = runPlan(process.argv.slice(2));
process.stdout.write(out);
process.stderr.write(err);
process.exitCode = code;
