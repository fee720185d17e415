/**
 * What a fresh sequence finds: each leading block is pinned to its content, wherever that lies or is going.
 */

import { type Core, HBM } from '../core.ts';
import { fastestIncoming, join, remember, setIncomingResident } from './blockTable/entries.ts';
import { Entry, type Sequence } from './blockTable/sequence.ts';

/** Pins block i of a fresh sequence to its content, wherever that lies or is going. Counts the hit. */
export function match(core: Core, sequence: Sequence, i: number, content: number): void {
  const { replicas, counters } = core;
  remember(core, sequence, i, content);
  core.touch(sequence, content);
  const ready = core.readyIn(content, HBM);
  if (ready !== -1) {
    core.hold(ready);
    sequence.replica[i] = ready;
    sequence.state[i] = Entry.READY;
    counters.hits[HBM]++;
    return;
  }
  if (core.incomingTo(content, HBM) !== -1) {
    counters.hits[HBM]++;
    counters.joined++;
    join(core, sequence, i, core.incomingTo(content, HBM));
    return;
  }
  sequence.state[i] = Entry.MATCHED;
  const lower = core.fastestReady(content, HBM + 1);
  if (lower !== -1) {
    const tier = replicas.tierOf(lower);
    counters.hits[tier]++;
    core.hold(lower);
    sequence.replica[i] = lower;
    if (core.config.moveOnReload) core.setResident(lower, 0);
    return;
  }
  const tier = fastestIncoming(core, content);
  counters.hits[tier]++;
  counters.joined++;
  const row = core.incomingTo(content, tier);
  core.waiters.append(core.jobs.waiter, row, sequence.id, i);
  if (core.config.moveOnReload) setIncomingResident(core, row, 0);
}
