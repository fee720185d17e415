/** Where tasks run: on threads of this process, or on the workers of a server. */

import { requireShapes } from '../../runtime/options.ts';
import { type PoolLimits, type TaskRunner, WorkerPool } from './workerPool.ts';

/** Whether workers are asked for by the URL of a server, and not by a number of threads. */
export function isServerUrl(text: string): boolean {
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(text);
}

/**
 * @param server `redis://host:port` of the workers; undefined for threads of this process
 * @param say told of what a person has to know while it waits for workers
 * @throws TKV_CONFIG, TKV_IO, TKV_MISMATCH naming `workers` where the server cannot be used
 */
export async function openRunner(
  server: string | undefined,
  limits: PoolLimits,
  say: (line: string) => void,
): Promise<TaskRunner> {
  requireShapes(
    { server, limits, say },
    { server: 'text?', limits: { workers: 'number', wallMs: 'number' }, say: 'function' },
  );
  if (server === undefined) return new WorkerPool(limits);
  const { RemoteRunner } = await import('./remoteRunner.ts');
  return RemoteRunner.open(server, limits, say);
}
