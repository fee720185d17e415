/**
 * Moves blocks between tiers by their temperature. `planMigration` says which, `executeMigration` and
 * `executeMigrationAsync` carry plans out, and `tick` does both whenever a tier is too full or has room for
 * hot blocks. It decides, and moves nothing: the moves are jobs of a manager, their ends come back through
 * the port. Nothing fails silently; every plan has a result.
 *
 * Beside compute it goes in batches of bounded size at the lowest priority, so that loads somebody waits for
 * never stand behind it.
 */

import { TierKVError } from '../errors.ts';
import { linkName, type TierName, tierName, tierNames } from '../tier/tier.ts';
import { Priority } from '../transfer/jobTable.ts';
import { HotColdClassifier } from './classifier.ts';
import {
  batchBytesOf,
  intervalUsOf,
  type MigratorOptions,
  requireMigratorOptions,
  thresholdsOf,
} from './options.ts';
import { directions, type MigratableBlock, type MigrationPlan, planMoves, type Thresholds } from './plan.ts';
import type { MigrationPort, MigrationResult, MigrationStats, MoveEnd } from './port.ts';

interface Moving<Block> {
  readonly plan: MigrationPlan;
  readonly block: Block;
  readonly madeAtUs: number;
  readonly priority: Priority;
  readonly ended: (result: MigrationResult) => void;
}

export class KVMigrator<Block extends MigratableBlock = MigratableBlock> {
  readonly classifier: HotColdClassifier;
  /** Called when the last move under way has ended. */
  onIdle: () => void = () => {};
  readonly #port: MigrationPort<Block>;
  readonly #thresholds: Thresholds;
  readonly #batchBytes: number;
  readonly #intervalUs: number;
  readonly #waiting: Moving<Block>[] = [];
  readonly #counts: Map<string, number> = new Map(directions.map((direction) => [direction, 0]));
  #failed = 0;
  #bytes = 0;
  #bytesUnderWay = 0;
  #begun = 0;
  #starting = false;
  #plannedAtUs = Number.NEGATIVE_INFINITY;

  /** @throws TKV_CONFIG for shares out of order, or a threshold that is none */
  constructor(port: MigrationPort<Block>, options: MigratorOptions = {}) {
    this.classifier = new HotColdClassifier(requireMigratorOptions(options));
    this.#port = port;
    this.#thresholds = thresholdsOf(options);
    this.#batchBytes = batchBytesOf(options);
    this.#intervalUs = intervalUsOf(options);
  }

  /** Moves that were begun and have not ended, and those that wait for their turn. */
  get underWay(): number {
    return this.#begun + this.#waiting.length;
  }

  /**
   * Which of the blocks should move.
   * @param pressure share of each tier that is in use, by name; a tier that is left out is as the port says
   * @throws TKV_INPUT for a tier that is not there or a share that is none
   */
  planMigration(
    blocks: readonly Block[],
    pressure: Partial<Record<TierName, number>>,
    nowUs: number,
  ): MigrationPlan[] {
    const { tiers } = this.#port;
    for (const name of Object.keys(pressure)) {
      if (tiers.some(({ tier }) => tierName(tier) === name)) continue;
      const known = tiers.map(({ tier }) => tierName(tier)).join(', ');
      throw inputError(`pressure.${name}`, `is no tier here. There are ${known}.`);
    }
    const shares = tiers.map(({ tier }, position) => {
      const name = tierName(tier);
      const share = pressure[name] ?? this.#port.pressure(position);
      if (share >= 0 && Number.isFinite(share)) return share;
      throw inputError(`pressure.${name}`, `is ${share}. Give the share that is in use, such as 0.9.`);
    });
    return planMoves(blocks, tiers, shares, this.classifier, this.#thresholds, nowUs);
  }

  /**
   * Carries plans out, all at once. @param ended told of all results, in the order of the plans, when the
   * last move has ended
   * @throws TKV_UNKNOWN_ID for a plan whose block is not among `blocks`, TKV_INPUT for a tier that is not
   * there; nothing has moved then
   */
  executeMigration(
    plans: readonly MigrationPlan[],
    blocks: readonly Block[],
    nowUs: number,
    ended: (results: readonly MigrationResult[]) => void = () => {},
  ): void {
    for (const moving of this.#collect(plans, blocks, nowUs, Priority.WRITE_THROUGH, ended)) {
      this.#begin(moving, nowUs);
    }
  }

  /**
   * The same beside compute: in batches, at the lowest priority, the next one when the last one is over.
   * @param overlapCompute false: at the priority of write-backs
   */
  executeMigrationAsync(
    plans: readonly MigrationPlan[],
    blocks: readonly Block[],
    nowUs: number,
    overlapCompute = true,
    ended: (results: readonly MigrationResult[]) => void = () => {},
  ): void {
    const priority = overlapCompute ? Priority.SCRUB : Priority.WRITE_THROUGH;
    this.#waiting.push(...this.#collect(plans, blocks, nowUs, priority, ended));
    this.#startBatch(nowUs);
  }

  /**
   * Time has passed, or something has changed: plans, if a tier is too full or has room for hot blocks, and
   * nothing planned before is still to be done. @returns moves planned
   */
  tick(nowUs: number): number {
    this.#startBatch(nowUs);
    if (this.underWay > 0 || nowUs - this.#plannedAtUs < this.#intervalUs) return 0;
    const blocks = this.#worthLookingAt();
    if (blocks === null) return 0;
    this.#plannedAtUs = nowUs;
    const plans = this.planMigration(blocks, {}, nowUs);
    this.executeMigrationAsync(plans, blocks, nowUs);
    return plans.length;
  }

  /** When `tick` is of use again, in microseconds; Infinity while no tier asks for it. */
  get nextTickUs(): number {
    const { tiers } = this.#port;
    const tooFull = tiers.some(
      (_, position) =>
        position < tiers.length - 1 && this.#port.pressure(position) >= this.#thresholds.downFrom,
    );
    return tooFull && this.underWay === 0 ? this.#plannedAtUs + this.#intervalUs : Number.POSITIVE_INFINITY;
  }

  getStats(): MigrationStats {
    const byDirection = Object.fromEntries(this.#counts);
    const total = [...this.#counts.values()].reduce((sum, count) => sum + count, 0);
    return { ...byDirection, total, failed: this.#failed, bytes: this.#bytes };
  }

  /** Candidates of the tiers that a plan would be about, or null where there is none. */
  #worthLookingAt(): Block[] | null {
    const { tiers } = this.#port;
    const { downFrom, upBelow } = this.#thresholds;
    const wanted = new Set<number>();
    for (let position = 0; position < tiers.length - 1; position++) {
      const pressure = this.#port.pressure(position);
      if (pressure >= downFrom) wanted.add(position);
      if (pressure < upBelow) {
        for (let below = position + 1; below < tiers.length; below++) wanted.add(below);
      }
    }
    if (wanted.size === 0) return null;
    return [...wanted].sort((a, b) => a - b).flatMap((position) => this.#port.candidates(position));
  }

  #collect(
    plans: readonly MigrationPlan[],
    blocks: readonly Block[],
    nowUs: number,
    priority: Priority,
    ended: (results: readonly MigrationResult[]) => void,
  ): Moving<Block>[] {
    const byId = new Map(blocks.map((block) => [block.blockId, block]));
    const results = new Array<MigrationResult>(plans.length);
    let left = plans.length;
    const moves = plans.map((plan, i): Moving<Block> => {
      const block = byId.get(plan.blockId);
      if (block === undefined) {
        const what = `plans[${i}].blockId ${plan.blockId} is not among the blocks`;
        const problem = `${what}. Plan and execute over the same ones.`;
        throw new TierKVError('TKV_UNKNOWN_ID', problem, { field: `plans[${i}].blockId` });
      }
      if (!this.#port.tiers.some(({ tier }) => tier === plan.toTier)) {
        const name = tierNames[plan.toTier] ?? plan.toTier;
        throw inputError(`plans[${i}].toTier`, `is ${name}, which is not there. Name a configured tier.`);
      }
      const settle = (result: MigrationResult): void => {
        results[i] = result;
        if (--left === 0) ended(results);
      };
      return { plan, block, madeAtUs: nowUs, priority, ended: settle };
    });
    if (plans.length === 0) ended([]);
    return moves;
  }

  #startBatch(nowUs: number): void {
    if (this.#starting) return; // a move that ended at once asks for the next one
    this.#starting = true;
    while (this.#waiting.length > 0) {
      const { sizeBytes } = this.#waiting[0].block;
      if (this.#bytesUnderWay > 0 && this.#bytesUnderWay + sizeBytes > this.#batchBytes) break;
      const next = this.#waiting.shift();
      if (next !== undefined) this.#begin(next, nowUs);
    }
    this.#starting = false;
  }

  #begin(moving: Moving<Block>, nowUs: number): void {
    const { plan, block, madeAtUs, priority } = moving;
    const { deadlineMs } = plan;
    if (deadlineMs !== undefined && nowUs > madeAtUs + 1000 * deadlineMs) {
      this.#end(moving, block.sizeBytes, nowUs, { success: false, reason: 'its deadline passed', nowUs });
      return;
    }
    if (block.tier !== plan.fromTier) {
      const reason = `the block has left ${tierName(plan.fromTier)}`;
      this.#end(moving, block.sizeBytes, nowUs, { success: false, reason, nowUs });
      return;
    }
    const { sizeBytes } = block;
    this.#begun++;
    this.#bytesUnderWay += sizeBytes;
    this.#port.move(block, plan.toTier, priority, nowUs, (end) => {
      this.#begun--;
      this.#bytesUnderWay -= sizeBytes;
      this.#end(moving, sizeBytes, nowUs, end);
      this.#startBatch(end.nowUs);
      if (this.underWay === 0) this.onIdle();
    });
  }

  #end({ plan, ended }: Moving<Block>, sizeBytes: number, begunUs: number, end: MoveEnd): void {
    const { blockId, fromTier, toTier } = plan;
    const { success, reason, nowUs } = end;
    if (success) {
      const direction = linkName(fromTier, toTier);
      this.#counts.set(direction, (this.#counts.get(direction) ?? 0) + 1);
      this.#bytes += sizeBytes;
    } else {
      this.#failed++;
    }
    ended({ success, blockId, fromTier, toTier, durationMs: (nowUs - begunUs) / 1000, sizeBytes, reason });
  }
}

function inputError(field: string, problem: string): TierKVError {
  return new TierKVError('TKV_INPUT', `${field} ${problem}`, { field });
}
