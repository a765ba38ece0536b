import { levels, logFormats } from '../observe/log-levels.ts';
import { defineCommand, file, oneOf, required, toggle } from './command.ts';

// The commands that are relays. Their modules are loaded only when one starts: no other command waits for them.

export const run = defineCommand({
  name: 'run',
  does: 'runs the relay',
  about:
    'Runs the relay until SIGTERM or SIGINT, then drains. SIGHUP, or a change of the file, reloads the configuration.',
  flags: {
    config: required(file('FILE', 'YAML or JSON; see config.schema.json')),
    'log-level': oneOf(
      'LEVEL',
      levels,
      `${levels.join(', ')}; default info. distributary log changes it for a limited time`,
    ),
    'log-format': oneOf('FORMAT', logFormats, `${logFormats.join(' or ')}, on stderr; default json`),
  },
  exit: '0 after a drain, 2 for a bad command line or configuration, 1 for anything else.',
  run: async ({ config, 'log-level': level = 'info', 'log-format': format = 'json' }, { terminal }) =>
    (await import('./serve.ts')).serve(config, level, format, terminal),
});

export const demo = defineCommand({
  name: 'demo',
  does: 'runs a relay over sample resources with three sample clients',
  about: `Runs a relay over the sample resources in deploy/demo/resources, and three sample clients, two with node.metadata.env prod
and one with test, that print what they receive. A change goes to one client of each environment first, and to the other when
that one has accepted it. Nothing else is needed. Runs until Ctrl-C.`,
  flags: { once: toggle('end when the clients have everything') },
  exit: '0; 1 if the relay cannot start or the clients do not get everything in time.',
  run: async ({ once }, { terminal }) => (await import('./demo.ts')).runDemo(once, terminal),
});
