/** Bringing blocks up: a matched block gets a job to HBM, or joins the one that already brings it. */

import { State } from '../replica/state.ts';
import { JobKind, Priority } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import { claim } from './claims.ts';
import { type Core, HBM } from './core.ts';
import { join } from './entries.ts';
import { letGo, stopWaitingBelow } from './releasing.ts';
import { makeRoom } from './residency.ts';
import { Entry, type Sequence } from './sequence.ts';
import { fail } from './settling.ts';

/** Brings a matched block to HBM, or joins the job that already does. */
export function load(core: Core, sequence: Sequence, i: number): void {
  const content = sequence.content[i];
  const ready = core.readyIn(content, HBM);
  if (ready !== -1) {
    core.hold(ready);
    stopWaitingBelow(core, sequence, i, content);
    letGo(core, sequence.replica[i]);
    sequence.replica[i] = ready;
    sequence.state[i] = Entry.READY;
    return;
  }
  const incoming = core.incomingTo(content, HBM);
  if (incoming !== -1) {
    join(core, sequence, i, incoming);
    return;
  }
  const row = createLoad(core, content, sequence.replica[i], Priority.DEMAND_LOAD);
  if (row === -1) {
    fail(core, sequence, i, Outcome.REFUSED);
    return;
  }
  join(core, sequence, i, row);
  makeRoom(core, HBM);
  claim(core, row);
}

/** A load of a content that has no job to HBM yet; `source` is -1 while its lower copy is still arriving. */
function createLoad(core: Core, content: number, source: number, priority: Priority): number {
  const { jobs, contents, replicas, counters } = core;
  let from = source;
  if (from !== -1 && replicas.state[from] !== State.READY) {
    from = core.fastestReady(content, HBM + 1);
    if (from === -1) return -1;
  }
  const row = jobs.create(JobKind.MOVE, HBM, contents.sizeClass[content], content, priority);
  if (row === -1) return -1;
  contents.hold(content);
  core.addIncoming(content, row);
  if (from !== -1) {
    jobs.source[row] = from;
    jobs.sourceGeneration[row] = core.generationOf(from);
    replicas.readers[from]++;
  }
  core.setJobResident(row, 1);
  const tier = from === -1 ? fastestLowerIncoming(core, content) : replicas.tierOf(from);
  counters.reloads[tier]++;
  if (core.nowUs - contents.offloadedAtUs[content] <= core.config.thrashingWindowUs) counters.thrashed++;
  return row;
}

function fastestLowerIncoming(core: Core, content: number): number {
  for (let tier = HBM + 1; tier < core.tiers; tier++) if (core.incomingTo(content, tier) !== -1) return tier;
  throw new Error('tierkv invariant broken: a load without a source waits for one that is arriving');
}

/** Brings a content to HBM for nobody in particular; false when it is there already or there is no room for it. */
export function prefetch(core: Core, content: number): boolean {
  if (core.readyIn(content, HBM) !== -1 || core.incomingTo(content, HBM) !== -1) return false;
  const source = core.fastestReady(content, HBM + 1);
  if (source === -1) return false;
  const row = createLoad(core, content, source, Priority.PREFETCH);
  if (row === -1) return false;
  makeRoom(core, HBM);
  claim(core, row);
  return true;
}
