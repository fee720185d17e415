/**
 * Lets a migrator tick when something has happened, and once more later while a tier is too full. While
 * nothing happens and no tier asks for it, nothing runs. Where ticks move nothing, they come more and more
 * rarely.
 */

import type { KVManager, ManagerListener } from '../runtime/index.ts';
import {
  type BlockMoves,
  CachedMigration,
  KVMigrator,
  type MigratableBlock,
  type MigratableContent,
  type MigratorOptions,
} from '../views/index.ts';
import { type Alarm, processAlarm } from './managerLoop.ts';

const DELAY_US = 250_000;
const DELAY_US_MAX = 16_000_000;

export class MigrationLoop<Block extends MigratableBlock> {
  readonly #migrator: KVMigrator<Block>;
  readonly #nowUs: () => number;
  readonly #alarm: Alarm;
  #delayUs = DELAY_US;
  #alarmIsSet = false;
  #isQueued = false;
  #stopped = false;

  constructor(migrator: KVMigrator<Block>, nowUs: () => number, alarm: Alarm = processAlarm) {
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
  }

  #later(): void {
    if (this.#alarmIsSet || this.#migrator.nextTickUs === Number.POSITIVE_INFINITY) return;
    this.#alarmIsSet = true;
    const delayUs = this.#delayUs;
    this.#delayUs = Math.min(2 * delayUs, DELAY_US_MAX);
    this.#alarm(delayUs, () => {
      this.#alarmIsSet = false;
      this.poke();
    });
  }
}

// The runtime's migrator: cached blocks go down before a tier is full, and come up again while they are hot.

export interface RuntimeMigration {
  readonly migrator: KVMigrator<MigratableContent>;
  /** What the manager's loop has to tell it. */
  readonly listener: ManagerListener;
  stop(): void;
}

/** Nothing where it is switched off, or where there is no tier to move to. */
export function runtimeMigration(
  options: MigratorOptions | false | undefined,
  manager: KVManager,
  moves: BlockMoves,
  nowUs: () => number,
): RuntimeMigration | null {
  if (options === false || manager.tiers.length === 1) return null;
  const port = new CachedMigration(manager, moves);
  const migrator = new KVMigrator(port, options ?? {});
  const loop = new MigrationLoop(migrator, nowUs);
  return {
    migrator,
    listener: { roomFreed: () => loop.poke() },
    stop: () => loop.stop(),
  };
}
