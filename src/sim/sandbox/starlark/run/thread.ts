/**
 * What a running call knows: its budget, and which functions are active. Starlark has no recursion, so the
 * stack of a call is at most as deep as the program has functions; a limit keeps it far below the machine's.
 */

import type { Meter } from '../../meter.ts';
import { fail } from '../failure.ts';
import type { FunctionNode } from '../syntax/index.ts';

const MAX_CALL_DEPTH = 16;

export class Thread {
  readonly meter: Meter;
  readonly #isActive: Uint8Array;
  #depth = 0;

  constructor(meter: Meter, functionCount: number) {
    this.meter = meter;
    this.#isActive = new Uint8Array(functionCount);
  }

  /** Forgets what a failed call left behind, and fills the budget up. */
  reset(): void {
    this.#isActive.fill(0);
    this.#depth = 0;
    this.meter.refill();
  }

  /** @throws PolicyError policy_runtime where the function calls itself, or calls nest too deep */
  enter({ id, name, line }: FunctionNode): void {
    if (this.#isActive[id] !== 0) fail(line, `${name} calls itself. Use a loop with a bound`);
    if (++this.#depth > MAX_CALL_DEPTH) fail(line, `calls nest deeper than ${MAX_CALL_DEPTH}`);
    this.#isActive[id] = 1;
  }

  leave({ id }: FunctionNode): void {
    this.#isActive[id] = 0;
    this.#depth--;
  }
}
