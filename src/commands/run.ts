import { levels, logFormats } from '../observe/log-levels.ts';
import { defineCommand, file, oneOf, required } from './command.ts';

/** Its modules are loaded when it starts: no other command waits for them. */
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
