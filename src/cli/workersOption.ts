/** `--workers`: how many threads, or the server whose workers run the cases. */

import { availableParallelism } from 'node:os';
import type { PoolLimits, TaskRunner } from '../io/workerPool.ts';
import { isServerUrl } from '../policy/workers/openRunner.ts';
import type { Tasks } from '../policy/workers/thread.ts';
import { numberWithin, type OptionValues } from './flags.ts';
import { interruptible } from './process.ts';

export const workersFlags = '--workers <n|redis://host>';
export const workersAbout = 'worker threads (default: one per core), or the Redis server of tierkv worker';

interface ChosenWorkers {
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

/**
 * Runs `work` with what runs its tasks, and ends that at the end and at a stop: then what waits leaves the queue.
 * @param say told of what a person has to know while it waits for workers
 * @throws the reason of a stop
 */
export function withRunner<T>(
  server: string | undefined,
  limits: PoolLimits,
  say: (line: string) => void,
  work: (runner: TaskRunner<Tasks>, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  return interruptible(async (signal) => {
    const { openRunner } = await import('../policy/workers/openRunner.ts');
    const runner = await openRunner(server, limits, say);
    signal.addEventListener('abort', () => void runner.close(), { once: true });
    try {
      return await work(runner, signal);
    } finally {
      await runner.close();
      signal.throwIfAborted();
    }
  });
}
