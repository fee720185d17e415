/**
 * Moves blocks between tiers by their temperature. `planMigration` chooses, `executeMigration` and
 * `executeMigrationAsync` carry plans out, and `tick` does both whenever a tier is too full or has room for hot
 * blocks. The migrator moves nothing itself: the moves are jobs of a manager, whose ends come back through the port.
 * Every plan has a result, failed ones too.
 *
 * Beside compute, moves go in batches of bounded size at the lowest priority, so that demand loads never stand behind
 * them.
 */

import { inputError, TierKVError } from '../runtime/errors.ts';
import * as is from '../runtime/kinds.ts';
import type { ManagerListener } from '../runtime/manager/core.ts';
import type { KVManager } from '../runtime/manager/manager.ts';
import { checkInputs } from '../runtime/options.ts';
import { JobPriority } from '../runtime/tables/jobTable.ts';
import {
  linkName,
  Outcome,
  outcomeNames,
  type Tier,
  type TierName,
  tierLinks,
  tierName,
  tierNames,
} from '../runtime/tier/tier.ts';
import { classifierOptionsOf, HotColdClassifier } from './hotColdClassifier.ts';
import {
  batchBytesOf,
  intervalUsOf,
  type MigratableBlock,
  type MigrationPlan,
  type MigrationThresholds,
  type MigrationTier,
  type MigratorOptions,
  planMoves,
  requireMigratorOptions,
  thresholdsOf,
} from './migrationPlan.ts';

interface Moving<Block> {
  readonly plan: MigrationPlan;
  readonly block: Block;
  readonly madeAtUs: number;
  readonly priority: JobPriority;
  readonly ended: (result: MigrationResult) => void;
}

/** Moves cached blocks between tiers by their temperature, beside compute. */
export class KVMigrator<Block extends MigratableBlock = MigratableBlock> {
  readonly classifier: HotColdClassifier;
  /** Called when the last move under way has ended. */
  onIdle: () => void = () => {};
  readonly #port: MigrationPort<Block>;
  readonly #thresholds: MigrationThresholds;
  readonly #batchBytes: number;
  readonly #intervalUs: number;
  readonly #waiting: Moving<Block>[] = [];
  readonly #counts: Map<string, number> = new Map(tierLinks().map(({ name }) => [name, 0]));
  #failed = 0;
  #bytes = 0;
  #bytesUnderWay = 0;
  #begun = 0;
  #starting = false;
  #plannedAtUs = Number.NEGATIVE_INFINITY;

  /** @throws TKV_CONFIG for shares out of order, or a threshold out of range */
  constructor(port: MigrationPort<Block>, options: MigratorOptions = {}) {
    checkInputs(
      { port, options },
      { port: is.fields({ pressure: is.func() }), options: is.optional(is.object()) },
    );
    this.classifier = new HotColdClassifier(classifierOptionsOf(requireMigratorOptions(options)));
    this.#port = port;
    this.#thresholds = thresholdsOf(options);
    this.#batchBytes = batchBytesOf(options);
    this.#intervalUs = intervalUsOf(options);
  }

  /** Moves that were begun and have not ended, and moves that wait for their turn. */
  get underWay(): number {
    return this.#begun + this.#waiting.length;
  }

  /**
   * Chooses the blocks that should move.
   * @param pressure used share of each tier, by name; for other tiers the port is asked
   * @throws TKV_INPUT for an unknown tier or a share out of range
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
      throw inputError(`pressure.${name}`, `must name a tier of this pool. Its tiers are ${known}.`);
    }
    const shares = tiers.map(({ tier }, position) => {
      const name = tierName(tier);
      const share = pressure[name] ?? this.#port.pressure(position);
      if (share >= 0 && Number.isFinite(share)) return share;
      throw inputError(`pressure.${name}`, `is ${share}. Give the used share, such as 0.9.`);
    });
    return planMoves(blocks, tiers, shares, this.classifier, this.#thresholds, nowUs);
  }

  /**
   * Carries plans out, all at once.
   * @param ended called with all results, in the order of the plans, when the last move has ended
   * @throws TKV_UNKNOWN_ID for a plan whose block is not among `blocks`, TKV_INPUT for an unknown tier; nothing has
   * moved then
   */
  executeMigration(
    plans: readonly MigrationPlan[],
    blocks: readonly Block[],
    nowUs: number,
    ended: (results: readonly MigrationResult[]) => void = () => {},
  ): void {
    for (const moving of this.#collect(plans, blocks, nowUs, JobPriority.WRITE_THROUGH, ended)) {
      this.#begin(moving, nowUs);
    }
  }

  /**
   * Carries plans out beside compute: in batches at the lowest priority, each when the one before it has ended.
   * @param overlapCompute false: at the priority of write-backs
   */
  executeMigrationAsync(
    plans: readonly MigrationPlan[],
    blocks: readonly Block[],
    nowUs: number,
    overlapCompute = true,
    ended: (results: readonly MigrationResult[]) => void = () => {},
  ): void {
    const priority = overlapCompute ? JobPriority.SCRUB : JobPriority.WRITE_THROUGH;
    this.#waiting.push(...this.#collect(plans, blocks, nowUs, priority, ended));
    this.#startBatch(nowUs);
  }

  /**
   * Call it when time has passed or something has changed. Makes plans if a tier is too full or has room for hot
   * blocks, and no earlier plan is left. @returns moves planned
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

  /** When `tick` should be called again, in microseconds; Infinity while no tier needs it. */
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

  /** Candidates of the tiers that a plan would affect, or null if no tier needs a plan. */
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
    priority: JobPriority,
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
        throw inputError(`plans[${i}].toTier`, `is ${name}, which is unknown. Name a configured tier.`);
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

// Moves of single blocks between tiers, and the callbacks that wait for their ends.

export class BlockMoves {
  readonly #manager: KVManager;
  /** Callbacks that wait for the end of a move, by key and tier. */
  readonly #waiting: Map<string, ((end: MoveEnd) => void)[]> = new Map();

  constructor(manager: KVManager) {
    checkInputs({ manager }, { manager: is.fields({ move: is.func() }) });
    this.#manager = manager;
  }

  /**
   * Brings the block whose key is four words to the tier at `position`, up or down, or joins the job that does.
   * `ended` is called once; at once if there is nothing to wait for.
   */
  move(
    key: Uint32Array,
    position: number,
    priority: JobPriority,
    nowUs: number,
    ended: (end: MoveEnd) => void,
  ): void {
    const answer = this.#manager.move(key, position, priority, nowUs);
    if (answer === 'started' || answer === 'pending') {
      this.await(key, position, ended);
      return;
    }
    ended({ success: answer === 'there', reason: answer === 'there' ? '' : answer, nowUs });
  }

  /** `ended` is called once when the job has ended that brings the block there. There must be one. */
  await(key: Uint32Array, position: number, ended: (end: MoveEnd) => void): void {
    const name = nameOf(position, key);
    const waiters = this.#waiting.get(name);
    if (waiters === undefined) this.#waiting.set(name, [ended]);
    else waiters.push(ended);
  }

  get listener(): Pick<ManagerListener, 'moved'> {
    return { moved: (position, key, outcome) => this.#moved(position, key, outcome) };
  }

  #moved(position: number, key: Uint32Array, outcome: Outcome): void {
    const name = nameOf(position, key);
    const waiters = this.#waiting.get(name);
    if (waiters === undefined) return;
    this.#waiting.delete(name);
    const success = outcome === Outcome.LOADED;
    const reason = success ? '' : outcomeNames[outcome];
    for (const ended of waiters) ended({ success, reason, nowUs: this.#manager.inspect.nowUs });
  }
}

function nameOf(position: number, key: Uint32Array): string {
  return `${position} ${key.join(' ')}`;
}

// The owners of blocks that a migrator works on, and its reports of moves.

export interface MoveEnd {
  readonly success: boolean;
  /** Why it failed, for humans. Empty for a success. */
  readonly reason: string;
  readonly nowUs: number;
}

/** How full a tier of a manager is: what lies in the room for blocks on their way makes it full, and no fuller. */
export function pressureOf(manager: KVManager, position: number): number {
  const { residentBytes, capacityBytes } = manager.inspect.usage(position);
  return Math.min(1, residentBytes / capacityBytes);
}

/** An owner of blocks in tiers: a manager, or a pool on one. */
export interface MigrationPort<Block extends MigratableBlock = MigratableBlock> {
  /** Fastest first. */
  readonly tiers: readonly MigrationTier[];
  /** Share of what the tier at `position` may hold at rest that is in use, from 0 to 1. */
  pressure(position: number): number;
  /** Blocks of the tier that may be moved, or the part of them worth looking at now. */
  candidates(position: number): readonly Block[];
  /** Begins to move the block; `ended` is called once, at the end or at once. */
  move(block: Block, to: Tier, priority: JobPriority, nowUs: number, ended: (end: MoveEnd) => void): void;
}

/** How one move of a `KVMigrator` ended. */
export interface MigrationResult {
  readonly success: boolean;
  readonly blockId: number;
  readonly fromTier: Tier;
  readonly toTier: Tier;
  /** From the begin of the move to its end. */
  readonly durationMs: number;
  readonly sizeBytes: number;
  readonly reason: string;
}

interface MigrationStats {
  /** Moves that arrived. */
  readonly total: number;
  /** Moves that did not. */
  readonly failed: number;
  /** Bytes of the moves that arrived. */
  readonly bytes: number;
  /** Moves that arrived, by direction, such as `hbmToDdr`. */
  readonly [direction: string]: number;
}

// A manager's cached blocks as a migrator's candidates: blocks that no sequence holds; held blocks stay where they
// are. A plan looks at a bounded number of slots of a tier and the next one goes on behind them, so its cost does not
// grow with the tiers.

const SLOTS_LOOKED_AT = 16_384;

interface MigratableContent extends MigratableBlock {
  /** Four words. */
  readonly key: Uint32Array;
}

export class CachedMigration implements MigrationPort<MigratableContent> {
  readonly tiers: readonly MigrationTier[];
  readonly #manager: KVManager;
  readonly #cursors: number[];
  readonly #moves: BlockMoves;

  /** @param moves gets the ends of moves from the manager's listener */
  constructor(manager: KVManager, moves: BlockMoves) {
    checkInputs(
      { manager, moves },
      {
        manager: is.fields({ inspect: is.fields({ cachedBlocks: is.func() }) }),
        moves: is.fields({ move: is.func() }),
      },
    );
    this.#manager = manager;
    this.#moves = moves;
    this.tiers = manager.config.tiers.map(({ tier, capacityBytes }) => ({ tier, capacityBytes }));
    this.#cursors = this.tiers.map(() => 0);
  }

  pressure(position: number): number {
    return pressureOf(this.#manager, position);
  }

  candidates(position: number): readonly MigratableContent[] {
    const { tier } = this.tiers[position];
    const from = this.#cursors[position];
    const { blocks, nextSlot } = this.#manager.inspect.cachedBlocks(position, from, SLOTS_LOOKED_AT);
    this.#cursors[position] = nextSlot;
    return blocks.map(
      ({ content, key, sizeBytes, use, isKept }): MigratableContent => ({
        blockId: content,
        key,
        tier,
        sizeBytes,
        use,
        isKept,
      }),
    );
  }

  move(
    { key }: MigratableContent,
    to: Tier,
    priority: JobPriority,
    nowUs: number,
    ended: (end: MoveEnd) => void,
  ): void {
    const position = this.tiers.findIndex(({ tier }) => tier === to);
    this.#moves.move(key, position, priority, nowUs, ended);
  }
}

// Lets a migrator tick when something has happened, and once more later while a tier is too full. While
// nothing happens and no tier asks for it, nothing runs. Where ticks move nothing, they come more and more
// rarely.

/** Calls `ring` once, `delayUs` microseconds from now. @returns a function that cancels it */
export type Alarm = (delayUs: number, ring: () => void) => () => void;

const DELAY_US = 250_000;
const DELAY_US_MAX = 16_000_000;

export class MigrationLoop<Block extends MigratableBlock> {
  readonly #migrator: KVMigrator<Block>;
  readonly #nowUs: () => number;
  readonly #alarm: Alarm;
  #delayUs = DELAY_US;
  #cancelAlarm: (() => void) | undefined;
  #isQueued = false;
  #stopped = false;

  constructor(migrator: KVMigrator<Block>, nowUs: () => number, alarm: Alarm) {
    this.#migrator = migrator;
    this.#nowUs = nowUs;
    this.#alarm = alarm;
    migrator.onIdle = () => this.poke();
  }

  /**
   * Something has happened that may have filled or emptied a tier. The tick comes when the call that is under
   * way has ended: a call of the manager or of the scheduler is one input of the log, and no other input may
   * stand within it.
   */
  poke(): void {
    if (this.#isQueued || this.#stopped) return;
    this.#isQueued = true;
    queueMicrotask(() => this.#tick());
  }

  #tick(): void {
    if (this.#stopped) return;
    // `#isQueued` stays set: room that the tick makes asks for another one, which would find the same tiers.
    try {
      if (this.#migrator.tick(this.#nowUs()) > 0) this.#delayUs = DELAY_US;
    } finally {
      this.#isQueued = false;
    }
    this.#later();
  }

  stop(): void {
    this.#stopped = true;
    this.#cancelAlarm?.();
  }

  #later(): void {
    if (this.#cancelAlarm !== undefined || this.#migrator.nextTickUs === Number.POSITIVE_INFINITY) return;
    const delayUs = this.#delayUs;
    this.#delayUs = Math.min(2 * delayUs, DELAY_US_MAX);
    this.#cancelAlarm = this.#alarm(delayUs, () => {
      this.#cancelAlarm = undefined;
      this.poke();
    });
  }
}

// The runtime's migrator: cached blocks go down before a tier is full, and come up again while they are hot.

export interface RuntimeMigration {
  readonly migrator: KVMigrator<MigratableContent>;
  /** Takes the news of the manager's loop. */
  readonly listener: ManagerListener;
  stop(): void;
}

/** Null where migration is switched off or HBM is the only tier. */
export function runtimeMigration(
  options: MigratorOptions | false | undefined,
  manager: KVManager,
  moves: BlockMoves,
  nowUs: () => number,
  alarm: Alarm,
): RuntimeMigration | null {
  if (options === false || manager.inspect.tiers.length === 1) return null;
  const port = new CachedMigration(manager, moves);
  const migrator = new KVMigrator(port, options ?? {});
  const loop = new MigrationLoop(migrator, nowUs, alarm);
  return { migrator, listener: { roomFreed: () => loop.poke() }, stop: () => loop.stop() };
}
