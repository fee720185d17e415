/**
 * Lets a migrator tick when something has happened, and once more later while a tier is too full. While
 * nothing happens and no tier asks for it, nothing runs. Where ticks move nothing, they come more and more
 * rarely.
 */

import type { KVMigrator, MigratableBlock } from '../runtime/index.ts';
import { type Alarm, processAlarm } from './managerLoop.ts';

const DELAY_US = 250_000;
const DELAY_US_MAX = 16_000_000;

export class MigrationLoop<Block extends MigratableBlock> {
  readonly #migrator: KVMigrator<Block>;
  readonly #nowUs: () => number;
  readonly #alarm: Alarm;
  #delayUs = DELAY_US;
  #alarmIsSet = false;
  #ticking = false;
  #stopped = false;

  constructor(migrator: KVMigrator<Block>, nowUs: () => number, alarm: Alarm = processAlarm) {
    this.#migrator = migrator;
    this.#nowUs = nowUs;
    this.#alarm = alarm;
    // told from within a call of the manager, whose own end comes first: no input stands within another
    migrator.onIdle = () => queueMicrotask(() => this.poke());
  }

  /** Something has happened that may have filled or emptied a tier. */
  poke(): void {
    if (this.#ticking || this.#stopped) return;
    this.#ticking = true;
    try {
      if (this.#migrator.tick(this.#nowUs()) > 0) this.#delayUs = DELAY_US;
    } finally {
      this.#ticking = false;
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
