/** The directory of a search: its state, written whole or not at all, and what it ends with. */

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { readState, type SearchPlan, type SearchState } from '../../evolve/search/index.ts';
import { configError } from '../../runtime/errors.ts';
import { makeDirectory, writeText } from '../output/index.ts';

export class SearchDirectory {
  readonly #folder: string;

  /** @throws TKV_IO where the folder cannot be made */
  constructor(folder: string) {
    this.#folder = folder;
    makeDirectory(folder, '--out');
  }

  path(name: string): string {
    return path.join(this.#folder, name);
  }

  /**
   * The state that an earlier run left.
   * @throws TKV_CONFIG where there is none and one is asked for, or one is there that would be overwritten
   */
  load(plan: SearchPlan, resume: boolean): SearchState | undefined {
    const file = this.path('state.json');
    if (!existsSync(file)) {
      if (!resume) return undefined;
      throw configError('--resume', `finds no state in ${this.#folder}`, 'Leave it out to begin there.');
    }
    if (!resume) {
      const remedy = 'Add --resume to go on, or name another directory.';
      throw configError('--out', `holds a search already (${this.#folder})`, remedy);
    }
    return readState(readFileSync(file, 'utf8'), plan, file);
  }

  save(state: SearchState): void {
    writeText(this.path('state.json'), `${JSON.stringify(state)}\n`);
  }

  write(name: string, text: string): void {
    writeText(this.path(name), text);
  }

  writeJson(name: string, value: unknown): void {
    this.write(name, `${JSON.stringify(value, undefined, 2)}\n`);
  }
}
