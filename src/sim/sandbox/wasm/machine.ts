/**
 * A metered module that runs: its budget, why it stopped, and all that it remembers, which is its memory and
 * its globals.
 */

import type { PlainState } from '../../control/policy.ts';
import { type Budget, Meter } from '../meter.ts';
import { PolicyError } from '../policyError.ts';
import { exportNames, stopReasons } from './metering/index.ts';

const PAGE_BYTES = 65_536;
/** A unit of memory is 8 bytes. */
const UNIT_BYTES = 8;
const MAX_STEPS = 2 ** 31 - 1;

export type WasmCall = (...values: readonly number[]) => number | undefined;

/** What an engine says of a trap, and what we call it: engines differ in their words. */
const traps: readonly (readonly [RegExp, string])[] = [
  [/unreachable/, 'it reaches an instruction that it marks as unreachable, or an assertion fails'],
  [/memory access/, 'it reads or writes outside its memory'],
  [/divide by zero|remainder by zero/, 'it divides an integer by 0'],
  [/unrepresentable/, 'a number does not fit into the integer it is made to'],
  [/table|function/, 'it calls a function that its table does not have'],
];

export class Machine {
  readonly #instance: WebAssembly.Instance;
  readonly #limits: Meter;
  readonly #fuel: WebAssembly.Global;
  readonly #reason: WebAssembly.Global;
  readonly #globals: readonly WebAssembly.Global[];
  readonly memory: WebAssembly.Memory;
  #isOutOfSteps = false;

  /**
   * @param module metered, with an exported memory
   * @throws PolicyError memory_limit, compile where its data lies outside its memory
   */
  constructor(module: WebAssembly.Module, pages: number, budget: Budget) {
    this.#limits = new Meter(budget);
    const pageLimit = Math.floor((this.#limits.memoryLimit * UNIT_BYTES) / PAGE_BYTES);
    if (pages > pageLimit) this.#outOfMemory();
    try {
      this.#instance = new WebAssembly.Instance(module, {});
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
      throw new PolicyError('compile', 'the module has data or functions outside its memory or table');
    }
    this.memory = this.#instance.exports[exportNames.memory] as WebAssembly.Memory;
    this.#fuel = this.#global(exportNames.fuel);
    this.#reason = this.#global(exportNames.reason);
    this.#global(exportNames.fuelLimit).value = this.#stepLimit;
    this.#global(exportNames.pageLimit).value = Math.min(pageLimit, PAGE_BYTES);
    this.#globals = Object.entries(this.#instance.exports)
      .filter(([name]) => /^g\d/.test(name))
      .map(([, global]) => global as WebAssembly.Global);
  }

  get #stepLimit(): number {
    return Math.min(this.#limits.stepLimit, MAX_STEPS);
  }

  get stepsUsed(): number {
    return this.#isOutOfSteps ? this.#stepLimit : this.#stepLimit - Number(this.#fuel.value);
  }

  get pages(): number {
    return this.memory.buffer.byteLength / PAGE_BYTES;
  }

  /** Of its memory, in units. */
  get memoryUsed(): number {
    return this.memory.buffer.byteLength / UNIT_BYTES;
  }

  setGlobal(index: number | undefined, value: number): void {
    if (index !== undefined) this.#global(exportNames.global + index).value = value;
  }

  function(index: number): WasmCall {
    // the rewriter exports functions under these names
    return this.#instance.exports[exportNames.function + index] as unknown as WasmCall;
  }

  /**
   * Calls a function within a new budget.
   *
   * @throws PolicyError step_limit, memory_limit, policy_runtime
   */
  run(callee: WasmCall, values: readonly number[]): number {
    this.#isOutOfSteps = false;
    try {
      // a call with a list of arguments of any length is several times slower
      switch (values.length) {
        case 1:
          return callee(values[0]) ?? 0;
        case 2:
          return callee(values[0], values[1]) ?? 0;
        case 3:
          return callee(values[0], values[1], values[2]) ?? 0;
        case 4:
          return callee(values[0], values[1], values[2], values[3]) ?? 0;
        default:
          return callee(...values) ?? 0;
      }
    } catch (error) {
      throw this.#explain(error);
    }
  }

  #explain(error: unknown): unknown {
    const reason = this.#reason.value;
    this.#reason.value = stopReasons.none;
    if (reason === stopReasons.steps) {
      this.#isOutOfSteps = true;
      const problem = `the call takes more than ${this.#stepLimit} steps. Loop over fewer elements`;
      return new PolicyError('step_limit', problem);
    }
    if (reason === stopReasons.memory) return this.#outOfMemory();
    if (reason === stopReasons.depth || error instanceof RangeError) {
      return new PolicyError('policy_runtime', 'calls nest too deep. Use a loop with a bound');
    }
    if (!(error instanceof WebAssembly.RuntimeError)) return error;
    const what = traps.find(([words]) => words.test(error.message))?.[1] ?? 'it does what no module may';
    return new PolicyError('policy_runtime', `the module stops because ${what}`);
  }

  #outOfMemory(): never {
    const limit = this.#limits.memoryLimit * UNIT_BYTES;
    throw new PolicyError('memory_limit', `the module takes more than ${limit} bytes of memory. Keep less`);
  }

  snapshot(): { readonly [part: string]: PlainState } {
    const words = new Uint32Array(this.memory.buffer);
    let length = words.length;
    while (length > 0 && words[length - 1] === 0) length--;
    return {
      pages: this.pages,
      memory: words.slice(0, length),
      globals: this.#globals.map(({ value }) => (typeof value === 'bigint' ? String(value) : value)),
    };
  }

  /** Pages of what `snapshot` gave. Memory never shrinks, so a larger machine cannot take it. */
  static pagesOf(state: PlainState): number {
    return (state as { readonly pages: number }).pages;
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const { pages, memory, globals } = state as {
      readonly pages: number;
      readonly memory: Uint32Array;
      readonly globals: readonly (number | string)[];
    };
    const missing = pages - this.pages;
    if (missing > 0) this.memory.grow(missing);
    const words = new Uint32Array(this.memory.buffer);
    words.set(memory);
    words.fill(0, memory.length);
    globals.forEach((value, i) => {
      this.#globals[i].value = typeof value === 'string' ? BigInt(value) : value;
    });
  }

  #global(name: string): WebAssembly.Global {
    return this.#instance.exports[name] as WebAssembly.Global;
  }
}
