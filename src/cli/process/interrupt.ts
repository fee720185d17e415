/**
 * Stopping a command from outside. The first SIGINT, SIGTERM or SIGHUP raises an abort signal, so that the
 * command closes what it holds and ends; the second ends the process at once. Commands that hold nothing need
 * none of this: without a handler the signal just ends them.
 */

import { constants } from 'node:os';

const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/**
 * What `signal.reason` is after a stop. The process then ends with 128 + the signal's number, as shells
 * expect.
 */
export class Interrupted extends Error {
  override readonly name: string = 'Interrupted';
  readonly exitCode: number;

  constructor(signal: NodeJS.Signals) {
    super(`stopped by ${signal}`);
    this.exitCode = 128 + constants.signals[signal];
  }
}

/** Runs `work` with an abort signal that the stop signals raise. */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const stop = (name: NodeJS.Signals): void => {
    const reason = new Interrupted(name);
    if (controller.signal.aborted) process.exit(reason.exitCode);
    controller.abort(reason);
  };
  for (const name of stopSignals) process.on(name, stop);
  try {
    return await work(controller.signal);
  } finally {
    for (const name of stopSignals) process.off(name, stop);
  }
}
