/** `--workers`: how many threads, or the server whose workers run the cases. */

import { availableParallelism } from 'node:os';
import type { OptionValues } from '../simulate/optionTable.ts';
import { numberWithin } from '../simulate/presetOptions.ts';
import { isServerUrl } from '../workers/openRunner.ts';

export const workersFlags = '--workers <n|redis://host>';
export const workersAbout = 'threads (default: one a core), or the server of tierkv worker';

export interface ChosenWorkers {
  /** Threads of this process. */
  readonly workers: number;
  /** Address of the server; undefined for threads. */
  readonly server: string | undefined;
}

/** @throws TKV_CONFIG for anything but a number of threads or an address */
export function workersOption(options: OptionValues): ChosenWorkers {
  const said = options.workers;
  if (typeof said === 'string' && isServerUrl(said)) return { workers: 1, server: said };
  const workers = numberWithin(options, 'workers', '--workers', { min: 1, max: 1024, whole: true });
  return { workers: workers ?? availableParallelism(), server: undefined };
}
