/**
 * A program run in a child process that does not outlive this one: signals are passed on, and the child is ended when
 * the process that started this one is gone, also by a kill that nothing can catch.
 */

import { spawn } from 'node:child_process';
import { constants } from 'node:os';

/** Milliseconds between two looks at the parent: an orphan goes on for about this long. */
const LOOK_MS = 500;

/** Runs `look` whenever the parent of this process may be gone. @returns ends the looking */
function whenOrphaned(act: () => void): () => void {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid !== parent) act();
  }, LOOK_MS);
  return () => clearInterval(timer);
}

/**
 * Runs Node with `args`, with the standard streams of this process.
 * @returns its exit status, 128 and the signal's number where a signal ended it
 */
export async function runAttached(
  args: readonly string[],
  options: { env?: NodeJS.ProcessEnv; cwd?: string } = {},
): Promise<number> {
  const child = spawn(process.execPath, args, { ...options, stdio: 'inherit' });
  const pass = (signal: NodeJS.Signals): void => void child.kill(signal);
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, pass);
  const endLooking = whenOrphaned(() => child.kill('SIGKILL'));
  try {
    return await new Promise<number>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (status, signal) =>
        resolve(status ?? 128 + (signal === null ? 0 : constants.signals[signal])),
      );
    });
  } finally {
    endLooking();
    for (const signal of signals) process.off(signal, pass);
  }
}
