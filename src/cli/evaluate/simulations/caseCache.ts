/**
 * Results of cases by content: the same policies, workload, arguments, seed and program give the same result,
 * bit for bit, so that it is kept and not computed again. In memory, and in a folder where one is named. Files
 * count by their bytes, those that other files name and those of tierkv itself among them.
 */

import { readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { contentHash, type PolicyBundle, policyId } from '../../../evolve/bundle/index.ts';
import type { RawMetrics, SuiteCase } from '../../../evolve/fitness/index.ts';
import { FileContents, filesReadBy, hashOfFolders } from '../../input/index.ts';
import { makeDirectory } from '../../output/index.ts';
import { buildSimulation } from '../../simulate/build.ts';
import { simulateArguments } from '../../sweep/point.ts';

/** Most results in memory; the oldest go first. */
const RESULTS_MAX = 10_000;

const folderOf = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));

let program: string | undefined;

/** What computes: the files of tierkv. A version is a name, and a checkout changes under it. */
export function programHash(): string {
  program ??= hashOfFolders([folderOf('../../../'), folderOf('../../../../data/')]);
  return program;
}

export class CaseCache {
  readonly #results = new Map<string, RawMetrics>();
  readonly #folder: string | undefined;
  /** Files that arguments lead to and what was in them, by the arguments. */
  readonly #inputs = new Map<
    string,
    { readonly files: readonly string[]; readonly hashes: readonly string[] }
  >();

  /** @param folder made where it is missing */
  constructor(folder?: string) {
    this.#folder = folder;
    if (folder !== undefined) makeDirectory(folder, '--cache');
  }

  /** @param contents files that several keys read once. Default: all are read again */
  key(bundle: PolicyBundle, suiteCase: SuiteCase, contents: FileContents = new FileContents()): string {
    return contentHash([policyId(bundle), this.caseHash(suiteCase, contents)]);
  }

  /** What a case is, whatever its files are named. */
  caseHash({ args, seed, perturbation }: SuiteCase, contents: FileContents = new FileContents()): string {
    const given = args.map((arg, i) => withoutFileName(arg, args[i - 1], contents));
    const read = this.#inputsOf(args, contents);
    const program = this.#folder === undefined ? '' : programHash();
    return contentHash([given, read, seed, perturbation, program]);
  }

  get(key: string): RawMetrics | undefined {
    const known = this.#results.get(key);
    if (known !== undefined || this.#folder === undefined) return known;
    try {
      const metrics: unknown = JSON.parse(readFileSync(this.#path(this.#folder, key), 'utf8'));
      if (!isMetrics(metrics)) return undefined;
      this.#keep(key, metrics);
      return metrics;
    } catch {
      return undefined; // not there, or cut short: it is computed
    }
  }

  set(key: string, metrics: RawMetrics): void {
    this.#keep(key, metrics);
    if (this.#folder === undefined) return;
    const file = this.#path(this.#folder, key);
    writeFileSync(`${file}.${process.pid}`, JSON.stringify(metrics));
    renameSync(`${file}.${process.pid}`, file);
  }

  #keep(key: string, metrics: RawMetrics): void {
    this.#results.set(key, metrics);
    if (this.#results.size <= RESULTS_MAX) return;
    const [oldest] = this.#results.keys();
    this.#results.delete(oldest);
  }

  #path(folder: string, key: string): string {
    return path.join(folder, `${key}.json`);
  }

  /**
   * Hashes of the files that the simulation of these arguments reads, in the order in which it does. Building
   * it once says which, also those that a specification names; when one of them changes it may name others.
   */
  #inputsOf(args: readonly string[], contents: FileContents): readonly string[] {
    const asText = JSON.stringify(args);
    const known = this.#inputs.get(asText);
    if (known?.files.every((file, i) => contents.of(file) === known.hashes[i])) return known.hashes;
    const files = filesReadBy(() => {
      const { workload, options } = simulateArguments(args);
      buildSimulation(workload, options, { skipsKeys: false });
    });
    const hashes = files.map((file) => contents.of(file));
    this.#inputs.set(asText, { files, hashes });
    return hashes;
  }
}

/**
 * An argument with the hash of a file in place of its path. Names of models stay, of their files and of their
 * folders: a model has defaults by its name.
 */
function withoutFileName(arg: string, before: string | undefined, contents: FileContents): string {
  const [, option = '', value = arg] = /^(--[\w-]+=)?(.*)$/s.exec(arg) ?? [];
  const hash = contents.of(value);
  if (hash === '') return isFolder(value) ? `${option}${path.basename(path.resolve(value))}/` : arg;
  const isModel = option === '--model=' || before === '--model';
  return `${option}${hash}${isModel ? path.basename(value) : ''}`;
}

function isFolder(name: string): boolean {
  return name !== '' && statSync(name, { throwIfNoEntry: false })?.isDirectory() === true;
}

function isMetrics(value: unknown): value is RawMetrics {
  if (typeof value !== 'object' || value === null) return false;
  const numbers = Object.values(value);
  return numbers.length > 0 && numbers.every((each) => typeof each === 'number');
}
