/** Where tasks run: on threads of this process, or on the workers of a server. */

import { type PoolLimits, type TaskRunner, WorkerPool } from '../../io/workerPool.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { Tasks } from './thread.ts';

/** Whether workers are asked for by the URL of a server, and not by a number of threads. */
export function isServerUrl(text: string): boolean {
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(text);
}

/**
 * Opens what runs cases: threads of this machine, or workers behind a Redis.
 * @param server `redis://host:port` of the workers; undefined for threads of this process
 * @param say told of what a person has to know while it waits for workers
 * @throws TKV_CONFIG, TKV_IO, TKV_MISMATCH naming `workers` where the server cannot be used
 */
export async function openRunner(
  server: string | undefined,
  limits: PoolLimits,
  say: (line: string) => void,
): Promise<TaskRunner<Tasks>> {
  checkInputs(
    { server, limits, say },
    {
      server: is.optional(is.text()),
      limits: is.fields({ workers: is.number(), wallMs: is.number() }),
      say: is.func(),
    },
  );
  if (server === undefined) return new WorkerPool<Tasks>(limits);
  const { RemoteRunner } = await import('./remoteRunner.ts');
  return RemoteRunner.open(server, limits, say);
}
