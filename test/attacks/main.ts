/** `npm run attack -- --target HOST:PORT`: the tables, against a relay that runs already. */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { type Attack, lackingFor } from './support/attack.ts';
import { Bystander } from './support/bystander.ts';
import { type Bounds, runAttack, usualBounds } from './support/run-attack.ts';
import type { Identity, Target } from './support/target.ts';
import { warmUp } from './support/warm-up.ts';
import { tables } from './tables.ts';

const MB = 1024 * 1024;
const usage = `usage: npm run attack -- --target HOST:PORT --cluster NAME [options]

  --target HOST:PORT       the relay's xDS listener
  --cluster NAME           a cluster that it has, for the well-behaved client
  --admin URL              its admin listener: for memory and open streams, and for the attacks on it
  --rest PORT              its REST listener, on the same host: for the attacks on it
  --tls-ca FILE            TLS: the authority of its certificate
  --tls-server-name NAME   what its certificate is for, if not HOST
  --tenant FILE,FILE       certificate and key of the well-behaved client
  --attacker FILE,FILE     certificate and key of whoever attacks
  --grep TEXT              only attacks with this in their names
  --health-ms N            how long Health/Check may take (${usualBounds.health})
  --memory-mb N            what may stay after an attack, garbage included (64)

Files are relative to where you are. Over TLS a HOST that is an address needs --tls-server-name.
Only attack what is yours: the relay and its machine are under load for some minutes.
`;

const text = { type: 'string' } as const;
const options = {
  target: text,
  cluster: text,
  admin: text,
  rest: text,
  'tls-ca': text,
  'tls-server-name': text,
  tenant: text,
  attacker: text,
  grep: text,
  'health-ms': text,
  'memory-mb': text,
} as const;

function fromCommandLine() {
  try {
    return parseArgs({ options }).values;
  } catch (error) {
    return refuse(messageOf(error));
  }
}

function refuse(problem: string): never {
  console.error(`${problem}\n\n${usage}`);
  process.exit(2);
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const values = fromCommandLine();

/** npm runs scripts in the package's folder. */
const read = (file: string): string => readFileSync(resolve(process.env['INIT_CWD'] ?? '.', file), 'utf8');

function identity(files: string | undefined): Identity | undefined {
  if (files === undefined) return undefined;
  const [certificate = '', privateKey = ''] = files.split(',');
  return { certificate: read(certificate), privateKey: read(privateKey) };
}

function targetOf(address: string): Target {
  const at = address.lastIndexOf(':');
  const ca = values['tls-ca'];
  const host = address.slice(0, at).replace(/^\[(.*)\]$/, '$1');
  const port = Number(address.slice(at + 1));
  if (ca !== undefined && isIP(host) !== 0 && values['tls-server-name'] === undefined) {
    refuse(
      `${host} is an address, which TLS cannot ask for: --tls-server-name says what the certificate is for`,
    );
  }
  const tls =
    ca === undefined
      ? undefined
      : {
          ca: read(ca),
          serverName: values['tls-server-name'],
          tenant: identity(values.tenant),
          attacker: identity(values.attacker),
        };
  const rest = values.rest === undefined ? undefined : Number(values.rest);
  return { host, port, rest, admin: values.admin?.replace(/\/$/, ''), tls };
}

/** What is printed, and whether the attack was withstood. */
async function attempt(attack: Attack, target: Target, witness: Bystander, bounds: Bounds): Promise<boolean> {
  const lacking = lackingFor(attack, target);
  if (lacking.length > 0) {
    console.log(`left out  ${attack.name}: the target has no ${lacking.join(', ')}`);
    return true;
  }
  const { problems, report } = await runAttack(attack, { target, witness, bounds });
  const figures = `health ${report.health.worst.toFixed()} ms, updates ${report.updates.worst.toFixed()} ms`;
  console.log(`${problems.length === 0 ? 'withstood' : 'FAILED   '} ${attack.name} (${figures})`);
  for (const problem of problems) console.log(`    ${problem}`);
  return problems.length === 0;
}

async function main(address: string, cluster: string): Promise<boolean> {
  const target = targetOf(address);
  const bounds = {
    ...usualBounds,
    health: Number(values['health-ms'] ?? usualBounds.health),
    memory: Number(values['memory-mb'] ?? 64) * MB,
    settle: 30_000,
  };
  await warmUp(target);
  await using witness = new Bystander({ target, cluster, updates: false });
  let withstood = true;
  for (const [name, attacks] of Object.entries(tables)) {
    console.log(`\n${name}`);
    for (const attack of attacks) {
      if (!attack.name.includes(values.grep ?? '')) continue;
      withstood = (await attempt(attack, target, witness, bounds)) && withstood;
    }
  }
  return withstood;
}

const { target, cluster } = values;
if (target === undefined || cluster === undefined) refuse('--target and --cluster are required');
try {
  if (!(await main(target, cluster))) process.exitCode = 1;
} catch (error) {
  console.error(`the attacks cannot go on: ${messageOf(error)}`);
  process.exitCode = 2;
}
