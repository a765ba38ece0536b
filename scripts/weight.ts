import { globSync, readFileSync } from 'node:fs';

/*
 * The weight of src/ without what is generated: `npm run weight`. Code is what is neither blank nor a comment; an options
 * bag is an interface whose name ends in Options.
 */

const weightless = () => ({ files: 0, code: 0, interfaces: 0, options: 0 });
type Weight = ReturnType<typeof weightless>;

const rooms = new Map<string, Weight>();
const total = weightless();

function add(weight: Weight, lines: readonly string[]): void {
  weight.files++;
  for (const line of lines) {
    if (/^\s*($|\/\/|\/\*|\*)/.test(line)) continue;
    weight.code++;
    const name = /^\s*(?:export )?interface (\w+)/.exec(line)?.[1];
    if (name === undefined) continue;
    weight.interfaces++;
    if (name.endsWith('Options')) weight.options++;
  }
}

for (const path of globSync('src/**/*.ts', { cwd: new URL('..', import.meta.url).pathname })) {
  const [, room = '', inner] = path.split('/');
  if (room === 'gen') continue;
  const name = inner === undefined ? '.' : room;
  const weight = rooms.get(name) ?? weightless();
  rooms.set(name, weight);
  const lines = readFileSync(new URL(`../${path}`, import.meta.url), 'utf8').split('\n');
  add(weight, lines);
  add(total, lines);
}

console.table(Object.fromEntries([...rooms].toSorted(([, a], [, b]) => b.code - a.code)));
console.table({ 'src/': total });
