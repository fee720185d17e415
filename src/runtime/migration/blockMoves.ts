/** Moves of single blocks between tiers, and who is told of their ends. */

import type { KVManager } from '../manager/kvManager.ts';
import type { Priority } from '../transfer/jobTable.ts';
import { Outcome, outcomeNames } from '../transfer/outcome.ts';
import type { MoveEnd } from './port.ts';

export class BlockMoves {
  readonly #manager: KVManager;
  /** Who waits for the end of a move, by key and tier. */
  readonly #waiting: Map<string, ((end: MoveEnd) => void)[]> = new Map();

  constructor(manager: KVManager) {
    this.#manager = manager;
  }

  /**
   * Brings the block whose key is four words to the tier at `position`, up or down, or joins the job that
   * does. `ended` is called once, at once where there is nothing to wait for.
   */
  move(
    key: Uint32Array,
    position: number,
    priority: Priority,
    nowUs: number,
    ended: (end: MoveEnd) => void,
  ): void {
    const answer = this.#manager.move(key, position, priority, nowUs);
    if (answer === 'started' || answer === 'pending') {
      const name = nameOf(position, key);
      const waiters = this.#waiting.get(name);
      if (waiters === undefined) this.#waiting.set(name, [ended]);
      else waiters.push(ended);
      return;
    }
    ended({ success: answer === 'there', reason: answer === 'there' ? '' : answer, nowUs });
  }

  /** The manager's listener hands the ends of moves on to here. */
  moved(position: number, key: Uint32Array, outcome: Outcome): void {
    const name = nameOf(position, key);
    const waiters = this.#waiting.get(name);
    if (waiters === undefined) return;
    this.#waiting.delete(name);
    const success = outcome === Outcome.LOADED;
    const reason = success ? '' : outcomeNames[outcome];
    for (const ended of waiters) ended({ success, reason, nowUs: this.#manager.nowUs });
  }
}

function nameOf(position: number, key: Uint32Array): string {
  return `${position} ${key.join(' ')}`;
}
