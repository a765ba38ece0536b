import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { publishedSchema } from '../src/config/json-schema.ts';
import { end, reference, start } from './config-reference.ts';

/**
 * Writes what is made of the schema of the configuration: the JSON Schema that editors use, and the reference in
 * docs/configuration.md. Tests fail when one is not up to date.
 */
const file = fileURLToPath(new URL('../config.schema.json', import.meta.url));
const biome = fileURLToPath(new URL('../node_modules/.bin/biome', import.meta.url));
writeFileSync(file, JSON.stringify(publishedSchema()));
execFileSync(biome, ['format', '--write', file], { stdio: ['ignore', 'ignore', 'inherit'] });

const page = fileURLToPath(new URL('../docs/configuration.md', import.meta.url));
const text = readFileSync(page, 'utf8');
const before = text.slice(0, text.indexOf(start) + start.length);
const after = text.slice(text.indexOf(end));
writeFileSync(page, `${before}\n\n${reference()}\n\n${after}`);
