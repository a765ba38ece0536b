/** What dist/ and the executable have instead of src/program.ts: the same, in scripts that V8 has compiled already (ADR 184). */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { getAsset, getAssetKeys, getRawAsset, isSea } from 'node:sea';
import { Script } from 'node:vm';
import { crc32 } from 'node:zlib';

interface Loaded {
  readonly script: Script;
  /** Of its text. */
  readonly checksum: number;
  /** As a CommonJS module has it. */
  readonly module: { readonly exports: Readonly<Record<string, unknown>> };
}

/** V8's code is for one Node. V8 itself compares its own version, its flags and the length of the text, and no more. */
const compiledFile = (name: string): string =>
  `compiled/${process.version}-${process.platform}-${process.arch}/${name}`;

/**
 * After V8's code is a checksum of the text and of the code: V8 runs what is damaged, or of another text, and crashes. It
 * comes last, as V8 copies code that does not begin at a multiple of eight bytes.
 */
const checksumBytes = 4;

const requireBuiltin = createRequire(process.execPath);

/** Those of a directory. In the executable they are inside. */
export class Scripts {
  readonly #directory: string;
  readonly #loaded = new Map<string, Loaded>();

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** src/program.ts. */
  async run(): Promise<void> {
    const { program } = this.#load('program.cjs');
    if (typeof program !== 'function') throw new Error(`${this.#directory} has no program`);
    await Reflect.apply(program, undefined, []);
  }

  /** The code of all functions that have run, by the file where the next start finds it. */
  compiled(): ReadonlyMap<string, Buffer> {
    const all = Array.from(this.#loaded, ([name, { script, checksum }]) => {
      const code = script.createCachedData();
      const last = Buffer.alloc(checksumBytes);
      last.writeUInt32LE(crc32(code, checksum));
      return [compiledFile(name), Buffer.concat([code, last])] as const;
    });
    return new Map(all);
  }

  #load(name: string): Loaded['module']['exports'] {
    const known = this.#loaded.get(name);
    if (known !== undefined) return known.module.exports;
    const filename = join(this.#directory, name);
    // Latin-1, which V8 need not decode: it is ASCII.
    const text = isSea() ? getAsset(name, 'latin1') : readFileSync(filename, 'latin1');
    const checksum = crc32(text);
    const cachedData = this.#codeOf(compiledFile(name), checksum);
    const script = new Script(text, { filename, ...(cachedData && { cachedData }) });
    const module: Loaded['module'] = { exports: {} };
    this.#loaded.set(name, { script, checksum, module });
    const wrapper: unknown = script.runInThisContext();
    if (typeof wrapper !== 'function') throw new Error(`${filename} is no script of the relay`);
    const require = (id: string): unknown =>
      id.startsWith('./') ? this.#load(id.slice(2)) : requireBuiltin(id);
    Reflect.apply(wrapper, undefined, [require, module, module.exports, filename, this.#directory]);
    return module.exports;
  }

  /**
   * Undefined: it was built on another Node, cannot be read, is damaged or of another text, so V8 compiles the script itself.
   * It does so, too, if it refuses the code.
   */
  #codeOf(path: string, checksum: number): Buffer | undefined {
    const kept = this.#kept(path);
    if (kept === undefined || kept.length < checksumBytes) return undefined;
    const end = kept.length - checksumBytes;
    const code = kept.subarray(0, end);
    return crc32(code, checksum) === kept.readUInt32LE(end) ? code : undefined;
  }

  #kept(path: string): Buffer | undefined {
    if (isSea()) return getAssetKeys().includes(path) ? Buffer.from(getRawAsset(path)) : undefined;
    try {
      return readFileSync(join(this.#directory, path));
    } catch {
      return undefined;
    }
  }
}

export const program = (): Promise<void> => new Scripts(import.meta.dirname).run();
