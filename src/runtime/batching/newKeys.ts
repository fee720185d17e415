/**
 * Keys that came while a request was decoding are an input of the scheduler. They go into the log before
 * whatever may publish blocks under them, or look for them.
 */

import type { BlockKeys } from '../keys/index.ts';
import type { SchedulerCore } from './core.ts';
import { SchedulerInput } from './schedulerSink.ts';
import type { RequestState } from './state/request.ts';

/** Logs the keys that running requests have, and that the log does not. */
export function logNewKeys(core: SchedulerCore, nowUs: number): void {
  if (core.sink === null) return;
  const { batch } = core;
  for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) {
    logKeys(core, batch.state(seat), nowUs);
  }
}

function logKeys({ sink }: SchedulerCore, state: RequestState, nowUs: number): void {
  const { keys, id, owner = 0 } = state.request;
  const from = state.loggedKeys;
  if (keys.length <= from) return;
  state.loggedKeys = keys.length;
  const added = { id, owner, keys: keysFrom(keys, from) };
  sink?.input(SchedulerInput.KEYS, nowUs, state.number, 0, 0, 0, 0, added);
  sink?.done?.();
}

/** The words of the keys from `from` on; good until the next key is appended. */
export function keysFrom(keys: BlockKeys, from: number): Uint32Array {
  return keys.words.subarray(4 * from, 4 * keys.length);
}
