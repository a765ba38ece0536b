import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { publishedSchema } from '../src/config/json-schema.ts';

/** Writes the JSON Schema that editors use. A test fails when it is not up to date. */
const file = fileURLToPath(new URL('../config.schema.json', import.meta.url));
const biome = fileURLToPath(new URL('../node_modules/.bin/biome', import.meta.url));
writeFileSync(file, JSON.stringify(publishedSchema()));
execFileSync(biome, ['format', '--write', file], { stdio: ['ignore', 'ignore', 'inherit'] });
