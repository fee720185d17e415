/**
 * A cache of results by content, in memory and optionally in a folder. The same policies, workload, deployment, seed and
 * program give the same result, bit for bit. A key holds the bytes of all files: of the case, of files that these name,
 * and of tierkv itself.
 */

import { readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { FileContents, filesReadBy, hashOfFolders } from '../../io/files/inputs.ts';
import { makeDirectory } from '../../io/files/results.ts';
import { codeFolder, dataFolder } from '../../packageFiles.ts';
import { withSeed } from '../../sim/build/plan.ts';
import type { Deployment } from '../../sim/description/settings.ts';
import type { PolicyBundle } from '../evolve/bundle/policyBundle.ts';
import { contentHash, policyId } from '../evolve/bundle/presets.ts';
import type { SuiteCase } from '../evolve/fitness/evaluation.ts';
import type { LostTimes, RawMetrics } from '../evolve/fitness/rawMetrics.ts';
import { writePayload } from '../workers/payload.ts';
import { type PlannedCase, planCase } from './runCase.ts';

/** Most results in memory; the oldest go first. */
const RESULTS_MAX = 10_000;

let program: string | undefined;

/** Hash of tierkv's own files. A version would not do, since a checkout changes under the same version. */
export function programHash(): string {
  program ??= hashOfFolders([codeFolder(), dataFolder()].map((folder) => fileURLToPath(folder)));
  return program;
}

/** The engine that runs the program: engines differ in the last bits of exp and log. */
export function engineName(): string {
  return `v8-${process.versions.v8.split('.').slice(0, 2).join('.')}`;
}

/** A planned case, and the files that were read for it. */
interface Known {
  readonly files: readonly string[];
  readonly hashes: readonly string[];
  readonly made: PlannedCase | { readonly error: unknown };
}

export class CaseCache {
  readonly #results = new Map<string, RawMetrics>();
  readonly #folder: string | undefined;
  readonly #engine: string;
  readonly #say: (line: string) => void;
  /** Whether results go to the folder; after the first that does not fit there, none does. */
  #keeps = true;
  /** Planned cases by deployment, and by seed too where the plan depends on it. */
  readonly #known = new Map<string, Known>();

  /**
   * @param folder made where it is missing
   * @param engine that computes
   * @param say told once where the folder takes no more results
   */
  constructor(folder?: string, engine: string = engineName(), say: (line: string) => void = () => {}) {
    this.#folder = folder;
    this.#engine = engine;
    this.#say = say;
    if (folder !== undefined) makeDirectory(folder, 'cache');
  }

  /** @param contents files that several keys read once. Default: all are read again */
  key(
    bundle: PolicyBundle,
    suiteCase: SuiteCase,
    contents: FileContents = new FileContents(),
    lost?: LostTimes,
  ): string {
    const own = [policyId(bundle), this.caseHash(suiteCase, contents)];
    return contentHash(lost === undefined ? own : [...own, lost]);
  }

  /** Hash of a case. Names of its files do not count. */
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
    return { ...own, plan: withSeed(made.plan, BigInt(own.seed)) };
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
    if (this.#folder === undefined || !this.#keeps) return;
    const file = this.#path(this.#folder, key);
    const draft = `${file}.${process.pid}`;
    try {
      writeFileSync(draft, JSON.stringify(metrics));
      renameSync(draft, file);
    } catch (error) {
      this.#keeps = false;
      const why = error instanceof Error && 'code' in error ? String(error.code) : String(error);
      this.#say(`${this.#folder} takes no more results (${why}); from here on they are kept in memory alone`);
      removeDraft(draft);
    }
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
   * The plan with the hashes of its files, in the order of reading, also of files that a specification names. After a
   * change of a file the plan is made again, since the file may name others.
   */
  #knownOf(suiteCase: SuiteCase, contents: FileContents): Known {
    const asText = writePayload(suiteCase.deployment.values);
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

/** Removes the draft of a result that did not fit: it takes room that others need. */
function removeDraft(file: string): void {
  try {
    rmSync(file, { force: true });
  } catch {
    // the folder is gone, or takes no changes at all
  }
}

/** Whether the plan depends on the seed: profiles of ServeGen are drawn while they are read. */
function rests(made: Known['made']): boolean {
  return 'plan' in made && made.plan.workload.kind === 'spec' && made.plan.workload.format === 'servegen';
}

/**
 * The deployment with the hash of each file in place of its path. Names of models stay, also those of their files and
 * folders, since a model has defaults by its name.
 */
function withoutFileNames({ values }: Deployment, contents: FileContents): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]): [string, unknown] => {
      if (typeof value !== 'string') return [name, typeof value === 'bigint' ? String(value) : value];
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
