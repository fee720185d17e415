/**
 * The budget of one call of a policy, in steps and in units of memory. Both are counted, never timed, so that
 * they are the same on every machine. What is used up once stays used until `refill`.
 */

import { requireInteger } from '../../runtime/errors.ts';
import { PolicyError } from './policyError.ts';

export interface Budget {
  /** Steps for one call. A step is an expression, a statement or a turn of a loop. Default 100,000. */
  steps?: number;
  /** Elements and 8-byte pieces of text that one call may allocate. Default 1,000,000. */
  memoryUnits?: number;
}

export class Meter {
  readonly stepLimit: number;
  readonly memoryLimit: number;
  /** Steps left. */
  steps: number;
  /** Units left. */
  memory: number;

  /** @throws TKV_CONFIG where a limit is no positive integer */
  constructor({ steps = 100_000, memoryUnits = 1_000_000 }: Budget = {}) {
    requireInteger('budget.steps', steps, 1, Number.MAX_SAFE_INTEGER);
    requireInteger('budget.memoryUnits', memoryUnits, 1, Number.MAX_SAFE_INTEGER);
    this.stepLimit = steps;
    this.memoryLimit = memoryUnits;
    this.steps = steps;
    this.memory = memoryUnits;
  }

  refill(): void {
    this.steps = this.stepLimit;
    this.memory = this.memoryLimit;
  }

  get stepsUsed(): number {
    return this.stepLimit - Math.max(0, this.steps);
  }

  get memoryUsed(): number {
    return this.memoryLimit - Math.max(0, this.memory);
  }

  /** @throws PolicyError step_limit */
  spend(steps: number, line: number): void {
    this.steps -= steps;
    if (this.steps < 0) this.outOfSteps(line);
  }

  /** Called before the memory is taken, so that a huge value is refused and never made. */
  allocate(units: number, line: number): void {
    this.memory -= units;
    if (this.memory >= 0) return;
    this.memory = 0;
    throw new PolicyError(
      'memory_limit',
      `the call allocates more than ${this.memoryLimit} units. Build smaller lists and texts, or none`,
      { line },
    );
  }

  /** Called before text of `length` characters is made. */
  allocateText(length: number, line: number): void {
    this.allocate(1 + Math.floor(length / 8), line);
  }

  outOfSteps(line: number): never {
    this.steps = 0;
    throw new PolicyError(
      'step_limit',
      `the call takes more than ${this.stepLimit} steps. Loop over fewer elements`,
      { line },
    );
  }
}
