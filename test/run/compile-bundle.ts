/** Runs a command of a bundle, and keeps what V8 has compiled until it ends: node test/run/compile-bundle.ts SCRIPT COMMAND... */
import { writeFileSync } from 'node:fs';
import { loadScript } from './bundled-program.ts';

const [script = ''] = process.argv.splice(2, 1);
const { program, compiled } = loadScript(script);
process.once('exit', () => {
  const { file, code } = compiled();
  writeFileSync(file, code);
});
await program();
