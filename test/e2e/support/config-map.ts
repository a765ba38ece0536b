import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from './paths.ts';

/**
 * A ConfigMap's volume, as the kubelet writes it: the files are in a directory of their own, `..data` is a link to that
 * directory, and each file is a link through `..data`. An update swaps `..data`.
 */
export class ConfigMapVolume implements Disposable {
  readonly #directory: TemporaryDirectory = temporaryDirectory();
  #generation = 0;
  #names: readonly string[] = [];

  get path(): string {
    return this.#directory.path;
  }

  /** From now on it has these files and no others. */
  update(data: ReadonlyMap<string, string>): void {
    const before = `..generation_${this.#generation}`;
    this.#generation += 1;
    const after = `..generation_${this.#generation}`;
    mkdirSync(this.#at(after));
    for (const [name, text] of data) writeFileSync(this.#at(join(after, name)), text);
    symlinkSync(after, this.#at('..data_tmp'));
    renameSync(this.#at('..data_tmp'), this.#at('..data'));
    for (const name of data.keys())
      if (!this.#names.includes(name)) symlinkSync(join('..data', name), this.#at(name));
    for (const name of this.#names) if (!data.has(name)) rmSync(this.#at(name));
    this.#names = [...data.keys()];
    rmSync(this.#at(before), { recursive: true, force: true });
  }

  #at(name: string): string {
    return join(this.#directory.path, name);
  }

  [Symbol.dispose](): void {
    this.#directory[Symbol.dispose]();
  }
}
