import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { replay } from './transcript.ts';

const folder = fileURLToPath(new URL('../scenarios/downstream/', import.meta.url));

/** `TRANSCRIPTS=write npx mocha …` writes down what the relay does, to be read in the diff. */
const rewrite = process.env['TRANSCRIPTS'] === 'write';

describe('conversations with clients', () => {
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.txt'))) {
    it(file.replace('.txt', '').replaceAll('-', ' '), () => {
      const script = readFileSync(folder + file, 'utf8');
      const played = replay(script);
      if (rewrite) writeFileSync(folder + file, played);
      else expect(played).to.equal(script);
    });
  }
});
