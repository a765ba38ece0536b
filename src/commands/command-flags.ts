/** What a flag takes, as node:util parseArgs has it. */
type FlagType = 'boolean' | 'string';

/** The flags of each command but completion, without --help. Written by npm run generate, from the commands. */
// biome-ignore format: a table, one command a line
export const commandFlags: ReadonlyMap<string, readonly (readonly [name: string, type: FlagType])[]> = new Map<string, readonly (readonly [string, FlagType])[]>([
  ['run', [['config', 'string'], ['log-level', 'string'], ['log-format', 'string']]],
  ['validate', [['config', 'string'], ['against', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['status', [['watch', 'boolean'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['clients', [['node', 'string'], ['type', 'string'], ['state', 'string'], ['limit', 'string'], ['watch', 'boolean'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['resources', [['type', 'string'], ['name', 'string'], ['limit', 'string'], ['watch', 'boolean'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['get', [['type', 'string'], ['name', 'string'], ['client', 'string'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['explain', [['type', 'string'], ['name', 'string'], ['param', 'string'], ['client', 'string'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['history', [['type', 'string'], ['name', 'string'], ['limit', 'string'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['diff', [['from', 'string'], ['to', 'string'], ['pending', 'boolean'], ['client', 'string'], ['param', 'string'], ['against', 'string'], ['type', 'string'], ['name', 'string'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['wait', [['type', 'string'], ['name', 'string'], ['revision', 'string'], ['timeout', 'string'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['tap', [['client', 'string'], ['type', 'string'], ['limit', 'string'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['rollback', [['to', 'string'], ['upstream', 'string'], ['type', 'string'], ['reason', 'string'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['freeze', [['upstream', 'string'], ['type', 'string'], ['reason', 'string'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['unfreeze', [['upstream', 'string'], ['type', 'string'], ['reason', 'string'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['release', [['upstream', 'string'], ['type', 'string'], ['reason', 'string'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['discard', [['upstream', 'string'], ['type', 'string'], ['reason', 'string'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['log', [['node', 'string'], ['level', 'string'], ['for', 'string'], ['reset', 'boolean'], ['admin', 'string'], ['cert', 'string'], ['key', 'string'], ['ca', 'string'], ['json', 'boolean']]],
  ['demo', [['once', 'boolean']]],
  ['version', [['json', 'boolean']]],
]);
