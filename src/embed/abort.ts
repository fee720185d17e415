/** Waiting that signals can end. No listener stays on a signal once the wait is over, however it ended. */

import { optionNames } from '../runtime/options.ts';

export interface WaitOptions {
  /**
   * Ends the wait: the call then rejects at once with the signal's reason. Without effect once the call has
   * its result.
   */
  readonly signal?: AbortSignal | undefined;
}

export const waitOptionsNames: readonly string[] = optionNames<WaitOptions>({ signal: true });

/** @throws the reason of the first signal that is raised */
export function throwIfAborted(signals: readonly AbortSignal[]): void {
  for (const signal of signals) signal.throwIfAborted();
}

/**
 * The end of `work`, or the reason of the signal that is raised before it; work is not begun when one was
 * already. It is only no longer waited for: the caller calls off what it began.
 */
export async function unlessAborted<T>(signals: readonly AbortSignal[], work: () => Promise<T>): Promise<T> {
  throwIfAborted(signals);
  const raised = Promise.withResolvers<never>();
  const onAbort = ({ target }: Event): void => raised.reject((target as AbortSignal).reason);
  for (const signal of signals) signal.addEventListener('abort', onAbort);
  try {
    return await Promise.race([work(), raised.promise]);
  } finally {
    for (const signal of signals) signal.removeEventListener('abort', onAbort);
  }
}
