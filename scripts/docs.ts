/** Builds the site of the documents, with search, into dist-docs or the directory of --output. Fails at a broken link. */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { buildSite, installGenerator } from './site/build-site.ts';

const root = join(import.meta.dirname, '..');
const { values } = parseArgs({ options: { output: { type: 'string', default: join(root, 'dist-docs') } } });
installGenerator();
buildSite(values.output);
process.stdout.write(`${join(values.output, 'index.html')}\n`);
