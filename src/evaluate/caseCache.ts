/**
 * Plans and results of cases by content: the same policies, workload, deployment, seed and program give the same result,
 * bit for bit, so that it is kept and not computed again. In memory, and in a folder where one is named. Files count by
 * their bytes, files that other files name and tierkv's own among them.
 */

import { readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { PolicyBundle } from '../evolve/bundle/policyBundle.ts';
import { contentHash, policyId } from '../evolve/bundle/presets.ts';
import type { SuiteCase } from '../evolve/fitness/evaluation.ts';
import type { RawMetrics } from '../evolve/fitness/rawMetrics.ts';
import { FileContents, filesReadBy, hashOfFolders } from '../files/inputs.ts';
import { makeDirectory } from '../files/results.ts';
import { codeFolder, dataFolder } from '../packageFiles.ts';
import { withSeed } from '../simulate/plan.ts';
import { type DeploymentSpec, writtenOf } from '../simulate/spec.ts';
import { type PlannedCase, planCase } from './runCase.ts';

/** Most results in memory; the oldest go first. */
const RESULTS_MAX = 10_000;

let program: string | undefined;

/** What computes: the files of tierkv. A version is a name, and a checkout changes under it. */
export function programHash(): string {
  program ??= hashOfFolders([codeFolder(), dataFolder()].map((folder) => fileURLToPath(folder)));
  return program;
}

/** What runs the program: engines differ in the last bits of exp and log. */
export function engineName(): string {
  return `v8-${process.versions.v8.split('.').slice(0, 2).join('.')}`;
}

/** A case as it was planned once, and the files that were read for it. */
interface Known {
  readonly files: readonly string[];
  readonly hashes: readonly string[];
  readonly made: PlannedCase | { readonly error: unknown };
}

export class CaseCache {
  readonly #results = new Map<string, RawMetrics>();
  readonly #folder: string | undefined;
  readonly #engine: string;
  /** By deployment, and by seed too where a plan rests on it. */
  readonly #known = new Map<string, Known>();

  /** @param folder made where it is missing @param engine that computes */
  constructor(folder?: string, engine: string = engineName()) {
    this.#folder = folder;
    this.#engine = engine;
    if (folder !== undefined) makeDirectory(folder, '--cache');
  }

  /** @param contents files that several keys read once. Default: all are read again */
  key(bundle: PolicyBundle, suiteCase: SuiteCase, contents: FileContents = new FileContents()): string {
    return contentHash([policyId(bundle), this.caseHash(suiteCase, contents)]);
  }

  /** What a case is, whatever its files are named. */
  caseHash(suiteCase: SuiteCase, contents: FileContents = new FileContents()): string {
    const { deployment, seed, perturbation } = suiteCase;
    const read = this.#knownOf(suiteCase, contents).hashes;
    const program = this.#folder === undefined ? '' : `${programHash()} ${this.#engine}`;
    return contentHash([withoutFileNames(deployment, contents), read, seed, perturbation, program]);
  }

  /**
   * The case as a thread runs it. Files are read again where one of them has changed.
   * @throws {TierKVError} for a deployment that is wrong
   */
  planOf(suiteCase: SuiteCase, contents: FileContents = new FileContents()): PlannedCase {
    const { made } = this.#knownOf(suiteCase, contents);
    if ('error' in made) throw made.error;
    const { deployment: _planned, ...own } = suiteCase;
    return { ...own, plan: withSeed(made.plan, String(own.seed)) };
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
   * The plan with hashes of the files that it rests on, in the order in which they are read, also files that a
   * specification names; when one of them changes it may name others.
   */
  #knownOf(suiteCase: SuiteCase, contents: FileContents): Known {
    const asText = JSON.stringify(suiteCase.deployment);
    const drawn = `${asText} ${suiteCase.seed}`;
    const known = this.#known.get(asText) ?? this.#known.get(drawn);
    if (known?.files.every((file, i) => contents.of(file) === known.hashes[i])) return known;
    let made: Known['made'] | undefined;
    const data = fileURLToPath(dataFolder());
    const files = filesReadBy(() => {
      try {
        made = planCase(suiteCase);
      } catch (error) {
        made = { error };
      }
    }).filter((file) => !file.startsWith(data));
    const found: Known = {
      files,
      hashes: files.map((file) => contents.of(file)),
      // it was made above, or its error caught
      made: made as Known['made'],
    };
    this.#known.set(rests(found.made) ? drawn : asText, found);
    return found;
  }
}

/** Whether the seed is in the plan, and not only in the run: profiles of ServeGen are drawn as they are read. */
function rests(made: Known['made']): boolean {
  return 'plan' in made && made.plan.workload.kind === 'spec' && made.plan.workload.format === 'servegen';
}

/**
 * What a deployment sets, with the hash of a file in place of its path. Names of models stay, of their files and of
 * their folders: a model has defaults by its name.
 */
function withoutFileNames(deployment: DeploymentSpec, contents: FileContents): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(writtenOf(deployment)).map(([name, value]) => {
      if (typeof value !== 'string') return [name, value];
      const hash = contents.of(value);
      if (hash === '') return [name, isFolder(value) ? `${path.basename(path.resolve(value))}/` : value];
      return [name, `${hash}${name === 'model' ? path.basename(value) : ''}`];
    }),
  );
}

function isFolder(name: string): boolean {
  return name !== '' && statSync(name, { throwIfNoEntry: false })?.isDirectory() === true;
}

function isMetrics(value: unknown): value is RawMetrics {
  if (typeof value !== 'object' || value === null) return false;
  const numbers = Object.values(value);
  return numbers.length > 0 && numbers.every((each) => typeof each === 'number');
}
