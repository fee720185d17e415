/**
 * The calls by which a sequence says what becomes of its blocks: held in a tier, kept for later, given back,
 * and its end in each of the ways there are. Each is an input of the log.
 */

import { requireInteger, TierKVError } from '../../errors.ts';
import { InputOp } from '../../log/decisionSink.ts';
import type { Retention } from '../../policy/index.ts';
import { keepIn as keepBlockIn } from '../residency/keeping.ts';
import { sendDown } from '../residency/residency.ts';
import type { Sequence } from '../sequences/blockTable/sequence.ts';
import { release as releaseBlock } from '../sequences/releasing.ts';
import { FillingCalls } from './fillingCalls.ts';

export abstract class ReleasingCalls extends FillingCalls {
  /**
   * Holds the sequence's blocks [from, to) in the tier at `position`, where that has them ready: up, they can
   * be read in HBM; down, their copies above that nobody else holds give up their room, and `load` brings
   * them back. Blocks that are written, on their way or not there yet stay as they are.
   * @returns blocks of the range that are held there now
   */
  keepIn(sequence: Sequence, from: number, to: number, position: number, nowUs: number): number {
    const core = this.core;
    this.live(sequence);
    requireInteger('position', position, 0, core.tiers - 1);
    this.now(nowUs);
    core.sink?.input(InputOp.KEEP, nowUs, [sequence.id, from, to, position]);
    let kept = 0;
    for (let i = from; i < Math.min(to, sequence.length); i++) {
      if (keepBlockIn(core, sequence, i, position)) kept++;
    }
    this.end(true);
    return kept;
  }

  /**
   * How the caller would like the sequence's blocks to be kept, those it has and those it seals from now on,
   * once it has let them go. A hint: the eviction policy makes of it what it can.
   */
  retain(sequence: Sequence, retention: Retention, nowUs: number): void {
    const core = this.core;
    this.live(sequence);
    requireInteger('retention.priority', retention.priority, -100, 100);
    requireInteger('retention.keepUntilUs', retention.keepUntilUs, 0);
    if (retention.keepUntilUs !== 0 && retention.keepUntilUs < Math.max(core.nowUs, nowUs)) {
      const problem = `retention.keepUntilUs is ${retention.keepUntilUs}, and it is ${nowUs} already`;
      const remedy = 'Name a time to come, or 0 for none.';
      throw new TierKVError('TKV_INPUT', `${problem}. ${remedy}`, { field: 'retention.keepUntilUs' });
    }
    this.now(nowUs);
    core.sink?.input(InputOp.RETAIN, nowUs, [sequence.id, retention.priority, retention.keepUntilUs]);
    sequence.retention = { ...retention };
    for (let i = 0; i < sequence.length; i++) {
      if (sequence.content[i] !== -1) core.policy.retain?.(sequence.content[i], retention);
    }
  }

  /** Lets blocks [from, to) go, the last first, so that the tail of a prefix is evicted before its head. */
  releaseRange(sequence: Sequence, from: number, to: number, nowUs: number): void {
    const core = this.core;
    this.live(sequence);
    this.now(nowUs);
    core.sink?.input(InputOp.RELEASE, nowUs, [sequence.id, from, to]);
    for (let i = Math.min(to, sequence.length) - 1; i >= from; i--) releaseBlock(core, sequence, i, false);
    this.end(true);
  }

  /**
   * As `releaseRange` up to the table's end, which it then has no more: for tokens that are taken back. Loads
   * that nobody else waits for are called off.
   */
  truncate(sequence: Sequence, length: number, nowUs: number): void {
    const core = this.core;
    this.live(sequence);
    requireInteger('length', length, 0, sequence.length);
    this.now(nowUs);
    core.sink?.input(InputOp.TRUNCATE, nowUs, [sequence.id, length]);
    for (let i = sequence.length - 1; i >= length; i--) releaseBlock(core, sequence, i, true);
    sequence.shortenTo(length);
    this.end(true);
  }

  /** Ends the sequence. What it computed or loaded stays cached; loads in flight go on. */
  release(sequence: Sequence, nowUs: number): void {
    this.live(sequence);
    this.now(nowUs);
    this.core.sink?.input(InputOp.RELEASE, nowUs, [sequence.id, 0, -1]);
    this.#close(sequence, false);
  }

  /** Ends the sequence and calls off the loads that nobody else waits for. */
  cancel(sequence: Sequence, nowUs: number): void {
    this.live(sequence);
    this.now(nowUs);
    this.core.sink?.input(InputOp.CANCEL, nowUs, [sequence.id]);
    this.#close(sequence, true);
  }

  /** Ends the sequence because others need its room: as `release`, and counted. */
  preempt(sequence: Sequence, nowUs: number): void {
    this.live(sequence);
    this.now(nowUs);
    this.core.sink?.input(InputOp.PREEMPT, nowUs, [sequence.id]);
    this.core.counters.preemptions++;
    this.#close(sequence, false);
  }

  /**
   * As `preempt`, and its room is made at once: those of its blocks that nobody else holds are sent to the
   * tier below, where one takes them. Blocks that were not sealed are gone.
   */
  demote(sequence: Sequence, nowUs: number): void {
    const core = this.core;
    this.live(sequence);
    this.now(nowUs);
    core.sink?.input(InputOp.DEMOTE, nowUs, [sequence.id]);
    core.counters.preemptions++;
    const replicas = sequence.replica.slice(0, sequence.length);
    for (let i = sequence.length - 1; i >= 0; i--) releaseBlock(core, sequence, i, false);
    core.closed(sequence);
    sendDown(core, replicas);
    this.end(true);
  }

  #close(sequence: Sequence, cancel: boolean): void {
    const core = this.core;
    for (let i = sequence.length - 1; i >= 0; i--) releaseBlock(core, sequence, i, cancel);
    core.closed(sequence);
    this.end(true);
  }
}
