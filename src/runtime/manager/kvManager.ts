/**
 * The manager: it decides which block lies where, what moves and who may read, and moves nothing itself.
 * Calls go in, each with `nowUs`; transfer jobs come out through `nextJob`; a driver executes them and
 * reports each end through `complete`. Every call returns at once. The same calls in the same order give the
 * same decisions.
 *
 * A request's path: open -> load (what lower tiers hold), allocate (the rest) -> write -> seal -> release
 */

import { requireInteger } from '../errors.ts';
import { InputOp } from '../log/decisionSink.ts';
import { type JobId, JobState, Priority } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import { ReleasingCalls } from './calls/releasingCalls.ts';
import { finish } from './jobs/endings.ts';
import { loadEnded } from './jobs/loadTimes.ts';
import { lackingBytes } from './jobs/unasked.ts';
import { detach } from './jobs/withdrawing.ts';
import { loseTier, type TierLoss } from './loss.ts';
import { type AdoptedBlock, adopt, adoptionWords } from './residency/adoption.ts';
import { type MoveAnswer, move } from './residency/moving.ts';
import { requireQuotaFits, setQuota } from './residency/quotaCalls.ts';
import { evict, holdersIn } from './residency/residency.ts';
import type { SequenceId } from './sequences/blockTable/sequence.ts';
import { prefetch as prefetchBlock } from './sequences/loading.ts';

export interface Eviction {
  readonly evicted: number;
  /** Sequences that hold blocks of the tier, when fewer were evicted than asked for. */
  readonly blockers: readonly SequenceId[];
}

export class KVManager extends ReleasingCalls {
  /** Brings the leading blocks of the chain to HBM for nobody in particular. @returns loads started */
  prefetch(keys: Uint32Array, count: number, nowUs: number, priority: Priority = Priority.PREFETCH): number {
    const core = this.core;
    requireInteger('priority', priority, Priority.DEMAND_LOAD, Priority.SCRUB);
    this.now(nowUs);
    core.sink?.input(InputOp.PREFETCH, nowUs, [count, priority], keys.subarray(0, count * 4));
    const matched = this.matchLength(keys, count);
    let started = 0;
    for (let i = 0; i < matched && lackingBytes(core, core.unitBytes(0), 0) === 0; i++) {
      const content = core.contents.find(keys, i * 4);
      if (content === -1) break; // the room for an earlier block was made at its cost
      if (prefetchBlock(core, content, priority)) started++;
    }
    this.end();
    return started;
  }

  /**
   * Brings one content, whose key is four words, to the tier at `position`, up or down, for nobody in
   * particular. Up, it is copied. Down, its copies above that nobody holds give up their room.
   */
  move(key: Uint32Array, position: number, priority: Priority, nowUs: number): MoveAnswer {
    const core = this.core;
    requireInteger('position', position, 0, core.tiers - 1);
    requireInteger('priority', priority, Priority.DEMAND_LOAD, Priority.SCRUB);
    this.now(nowUs);
    core.sink?.input(InputOp.MOVE, nowUs, [position, priority], key.subarray(0, 4));
    const answer = move(core, core.contents.find(key, 0), position, priority);
    this.end();
    return answer;
  }

  /**
   * A lower tier's store holds this block since an earlier run, durable or just verified: lookups find it
   * from now on. Call it before anything else, for the block used longest ago first.
   * @returns false when it stays out: its slot is not free, the tier is full, or it has that content already.
   * The slot's generation counts either way
   */
  adopt(position: number, block: AdoptedBlock, nowUs: number): boolean {
    const core = this.core;
    requireInteger('position', position, 1, core.tiers - 1);
    const { slot, generation, sizeClass } = block;
    this.now(nowUs);
    core.sink?.input(InputOp.ADOPT, nowUs, [position, slot, generation, sizeClass], adoptionWords(block));
    const adopted = adopt(core, position, block);
    this.end();
    return adopted;
  }

  /** Evicts up to `count` cached blocks of the tier at `position`, in the order of the eviction policy. */
  evict(position: number, count: number, nowUs: number): Eviction {
    const core = this.core;
    requireInteger('position', position, 0, core.tiers - 1);
    this.now(nowUs);
    core.sink?.input(InputOp.EVICT, nowUs, [position, count]);
    let evicted = 0;
    for (; evicted < count; evicted++) {
      const victim = core.policy.victim(position);
      if (victim === -1) break;
      evict(core, victim, position, true);
    }
    this.end();
    return { evicted, blockers: evicted < count ? holdersIn(core, position) : [] };
  }

  /**
   * Room of the tier at `position` that is the owner's own: while it takes no more there, none of its blocks
   * is evicted for another owner, and what it takes beyond goes first.
   * @param bytes null for no quota
   * @throws TKV_CONFIG when the quotas of the tier would be more than its capacity
   */
  setQuota(owner: number, position: number, bytes: number | null, nowUs: number): void {
    const core = this.core;
    requireInteger('owner', owner, 0, core.config.owners - 1);
    requireInteger('position', position, 0, core.tiers - 1);
    if (bytes !== null) requireInteger('quotaBytes', bytes, 0);
    requireQuotaFits(core, owner, position, bytes ?? 0);
    this.now(nowUs);
    core.sink?.input(InputOp.QUOTA, nowUs, [owner, position, bytes ?? -1]);
    setQuota(core, owner, position, bytes);
    this.end(true);
  }

  /**
   * The driver says how a job ended. `digest*` belong to the end of a SEAL job.
   * @throws TKV_STALE for a job that ended before
   */
  complete(job: JobId, outcome: Outcome, nowUs: number, digestLo = 0, digestHi = 0): void {
    const core = this.core;
    const row = core.jobs.rowOf(job);
    this.now(nowUs);
    core.sink?.input(InputOp.COMPLETE, nowUs, [job, outcome, digestLo, digestHi]);
    finish(core, row, outcome, digestLo, digestHi);
    this.end(true);
  }

  /**
   * Time has passed. Jobs whose deadline is over are given up: whoever waits for one computes its block
   * again, and its slots wait for the driver.
   * @returns jobs given up
   */
  tick(nowUs: number): number {
    const core = this.core;
    const { jobs } = core;
    this.now(nowUs);
    core.sink?.input(InputOp.TICK, nowUs, []);
    let givenUp = 0;
    for (let job = core.deadlines.takeDue(nowUs); job !== 0; job = core.deadlines.takeDue(nowUs)) {
      const row = jobs.rowOf(job);
      loadEnded(core, row, false);
      jobs.markOverdue(row);
      if (jobs.state[row] === JobState.DETACHED) continue;
      detach(core, row, Outcome.TIMED_OUT);
      givenUp++;
    }
    this.end(true);
    return givenUp;
  }

  /** Gives an issued job another deadline than the configured one, in microseconds of the manager's time. */
  setDeadline(job: JobId, deadlineUs: number): void {
    const core = this.core;
    const row = core.jobs.rowOf(job);
    requireInteger('deadlineUs', deadlineUs, 0);
    core.sink?.input(InputOp.DEADLINE, core.nowUs, [job, deadlineUs]);
    core.jobs.deadlineUs[row] = deadlineUs;
    core.deadlines.add(job, deadlineUs);
  }

  /**
   * The bytes of the tier at `position` are gone, and another store takes its place, empty. Blocks that
   * sequences held there are MATCHED again where another tier has them (`load` them, also beyond `matched`),
   * and FAILED where none does. Jobs that the driver has still end through `complete`.
   */
  loseTier(position: number, nowUs: number): TierLoss {
    const core = this.core;
    requireInteger('position', position, 0, core.tiers - 1);
    this.now(nowUs);
    core.sink?.input(InputOp.LOSE, nowUs, [position]);
    const loss = loseTier(core, position);
    this.end(true);
    return loss;
  }

  /**
   * The next job for the driver, or 0 when there is none now. Jobs detached before the driver took them are
   * included.
   */
  nextJob(): JobId {
    return this.core.outbox.shift();
  }
}
