/**
 * Results of cases by content: the same policies, workload, arguments, seed and version give the same result,
 * bit for bit, so that it is kept and not computed again. In memory, and in a folder where one is named.
 */

import { readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { contentHash, type PolicyBundle, policyId } from '../../../evolve/bundle/index.ts';
import type { RawMetrics, SuiteCase } from '../../../evolve/fitness/index.ts';
import { makeDirectory } from '../../output/index.ts';

/** Most results in memory; the oldest go first. */
const RESULTS_MAX = 10_000;

function version(): string {
  const packageJson = readFileSync(new URL('../../../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(packageJson) as { version: string }).version;
}

export class CaseCache {
  readonly #results = new Map<string, RawMetrics>();
  readonly #folder: string | undefined;
  readonly #version: string = version();
  /** Hashes of files by path. */
  readonly #files = new Map<string, string>();

  /** @param folder made where it is missing */
  constructor(folder?: string) {
    this.#folder = folder;
    if (folder !== undefined) makeDirectory(folder, '--cache');
  }

  key(bundle: PolicyBundle, { args, seed, perturbation }: SuiteCase): string {
    // a file counts by what is in it, wherever it is
    const content = args.map((arg) => this.#contentOf(arg.slice(arg.indexOf('=') + 1)) ?? arg);
    return contentHash([policyId(bundle), content, seed, perturbation, this.#version]);
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

  /** Undefined for an argument that names no file. */
  #contentOf(argument: string): string | undefined {
    const known = this.#files.get(argument);
    if (known !== undefined || !isFile(argument)) return known;
    const hash = contentHash(readFileSync(argument, 'latin1'));
    this.#files.set(argument, hash);
    return hash;
  }
}

function isFile(name: string): boolean {
  return name !== '' && statSync(name, { throwIfNoEntry: false })?.isFile() === true;
}

function isMetrics(value: unknown): value is RawMetrics {
  if (typeof value !== 'object' || value === null) return false;
  const numbers = Object.values(value);
  return numbers.length > 0 && numbers.every((each) => typeof each === 'number');
}
