/**
 * What every call into the manager is made of: it takes the time, it is done to its end before it returns,
 * and then the listener is told what came of it.
 */

import { TierKVError } from '../../errors.ts';
import { DecisionOp } from '../../log/decisionSink.ts';
import { drain } from '../jobs/drain.ts';
import type { Sequence } from '../sequences/blockTable/sequence.ts';
import type { ManagerListener } from '../tables/listener.ts';
import { ManagerViews } from '../views/managerViews.ts';

export abstract class ManagerCalls extends ManagerViews {
  /** Whom the manager tells of jobs, settled sequences and room, in place of whoever was told before. */
  listen(listener: ManagerListener): void {
    this.core.listener = listener;
  }

  /**
   * The engine begins to compute, or has ended: loads that wait for kernels are not slow. It decides nothing
   * but estimates, so no log has it.
   */
  computing(isComputing: boolean, nowUs: number): void {
    const { core } = this;
    this.now(nowUs);
    core.computeUs = core.computedUs();
    core.computesSinceUs = isComputing ? nowUs : -1;
  }

  protected refuse(sequence: number, from: number, to: number): false {
    this.core.counters.refusedAllocations++;
    this.core.log(DecisionOp.REFUSE, sequence, from, to);
    return false;
  }

  /** @throws TKV_INPUT for what is no table of this manager, TKV_UNKNOWN_ID for one that has ended */
  protected live(sequence: Sequence): void {
    this.requireOwn(sequence);
    if (this.core.sequences.get(sequence.id) !== sequence) {
      throw new TierKVError('TKV_UNKNOWN_ID', `sequence ${sequence.id} has ended. Open a new one.`, {
        field: 'sequence',
      });
    }
  }

  protected now(nowUs: number): void {
    const core = this.core;
    if (!(nowUs >= core.nowUs)) {
      const problem = `nowUs went back from ${core.nowUs} to ${nowUs}. Pass a clock that does not.`;
      throw new TierKVError('TKV_INPUT', problem, { field: 'nowUs' });
    }
    core.nowUs = nowUs;
  }

  /** The end of every input: what it left to do is done, and then the listener is told what came of it. */
  protected end(freesRoom = false): void {
    const core = this.core;
    drain(core, freesRoom);
    const { listener, settled } = core;
    if (freesRoom) listener.roomFreed?.();
    if (listener.settled === undefined) settled.length = 0;
    else if (settled.length > 0) {
      for (const sequence of settled.splice(0)) if (sequence.pending === 0) listener.settled(sequence);
    }
    if (core.moved.length > 0) {
      for (const { key, tier, outcome } of core.moved.splice(0)) listener.moved?.(tier, key, outcome);
    }
    if (core.outbox.size > 0) listener.jobsIssued?.();
  }
}
