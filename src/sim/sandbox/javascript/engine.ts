/**
 * One QuickJS engine in WebAssembly: a runtime and a context of its own, with a budget for each call. Several
 * instances of a program take turns in it, each with its own image of the memory.
 *
 * A step is 20 turns: functions of the engine that begin and turns of its loops, counted in its own code. So
 * a built-in method pays for a long text or array, and steps are exact for one build of the engine. Where a
 * budget is used up in a loop or in calls, the engine is asked to stop, which it does soundly and with the
 * line; where it does not come to that soon, as inside of a built-in method, it is stopped for good. Its own
 * limit of memory does not count what small values take, so the memory itself is of a fixed size.
 */

import type { QuickJSContext, QuickJSHandle, QuickJSRuntime } from 'quickjs-emscripten';
import { Meter } from '../meter.ts';
import { PolicyError, type PolicyErrorFacts } from '../policyError.ts';
import { type MeteredModule, MOST_FUEL, newModule } from './engineModule.ts';
import { takenAway } from './guestCode.ts';
import { type Image, ImageMemory } from './image.ts';

const STEP_TURNS = 20;
/**
 * Turns over the budget in which the engine has to have stopped by itself: it asks whether to go on once in
 * 10,000 calls and jumps back.
 */
const GRACE = 2_000_000;
/** Turns in which a program has to be read: some, and more for each character. Most take 20 a character. */
const READING = 2_000_000;
const READING_CHARACTER = 300;
/**
 * Of the engine's own stack: calls 80 deep, blocks 40 deep. Each exception lists all calls that are active,
 * so that a deeper stack makes exceptions dear.
 */
const STACK_BYTES = 16 * 1024;
const UNIT_BYTES = 8;
/** 16 MiB, of which the engine takes about 5 for its stack and itself. */
const PAGES = 256;
const MAX_SOURCE = 256 * 1024;
const FILE = 'policy.js';

export class Engine {
  readonly #runtime: QuickJSRuntime;
  readonly #context: QuickJSContext;
  readonly #image: ImageMemory;
  readonly memory: WebAssembly.Memory;
  #limits: Meter = new Meter();
  /** Where the memory that the engine takes without a program ends. */
  readonly #ownBytes: number;
  readonly #fuel: MeteredModule['fuel'];
  /** Turns of the last call: what it may take, and what it took. */
  #allowed = 0;
  #taken = 0;
  /** Why no program can run in it any more. */
  #end: PolicyError | null = null;
  /** Whose image is in the memory now. */
  #resident: object | null = null;
  #images: WeakMap<object, Image> = new WeakMap();

  /** @param memory of the module, which cannot grow */
  constructor({ quickjs, fuel }: MeteredModule, memory: WebAssembly.Memory) {
    this.memory = memory;
    this.#fuel = fuel;
    this.#runtime = quickjs.newRuntime();
    this.#runtime.setMaxStackSize(STACK_BYTES);
    this.#runtime.setInterruptHandler(() => this.#fuel.value < GRACE);
    this.#context = this.#runtime.newContext({
      intrinsics: Object.fromEntries([
        ...['BaseObjects', 'Eval', 'JSON', 'MapSet', 'TypedArrays', 'BigInt'].map((name) => [name, true]),
        ...['Date', 'Promise', 'Proxy', 'RegExp', 'RegExpCompiler', 'StringNormalize'].map((name) => [
          name,
          false,
        ]),
      ]),
    });
    this.#context.unwrapResult(this.#context.evalCode(takenAway)).dispose();
    this.#image = new ImageMemory(memory);
    this.#ownBytes = this.#image.end;
  }

  /** Most of its memory that the program had since it was loaded, in units. */
  get memoryUsed(): number {
    return Math.max(0, Math.ceil((this.#image.lastUsed() - this.#ownBytes - this.#ballast()) / UNIT_BYTES));
  }

  /** Bytes that a program may not have: the memory is as large as it is, and what is too much is filled. */
  #ballast(): number {
    const room = this.memory.buffer.byteLength - this.#ownBytes;
    return Math.max(0, room - this.#limits.memoryLimit * UNIT_BYTES);
  }

  /** Whether a program broke the engine, so that no other one can run in it. */
  get isBroken(): boolean {
    return this.#end !== null;
  }

  get stepsUsed(): number {
    return Math.min(Math.ceil(this.#taken / STEP_TURNS), this.#limits.stepLimit);
  }

  /**
   * Checks the text of a program without running it.
   *
   * @returns turns that reading it takes
   * @throws PolicyError compile
   */
  check(source: string): number {
    if (source.length > MAX_SOURCE) {
      const problem = `the program has ${source.length} characters, over ${MAX_SOURCE}. Make it shorter`;
      throw new PolicyError('compile', problem);
    }
    this.#give(null);
    this.#limits = new Meter();
    let result: ReturnType<QuickJSContext['evalCode']>;
    this.#allow(READING + READING_CHARACTER * source.length);
    try {
      result = this.#context.evalCode(source, FILE, { type: 'global', strict: true, compileOnly: true });
    } catch (cause) {
      const problem = 'the program takes too long to read, or nests too deep. Take it apart';
      this.#end = new PolicyError('compile', problem, { cause });
      throw this.#end;
    }
    if (result.error === undefined) {
      result.value.dispose();
      this.#free();
      return this.#taken;
    }
    const { message, line } = this.#thrown(result.error);
    const problem = `${message}. Write a plain script: no types, import, export or regular expression`;
    throw new PolicyError('compile', problem, line === undefined ? {} : { line });
  }

  /** Gives the engine to an owner: as it was left, or new with the limits of a budget. */
  enter(owner: object, limits: Meter): void {
    this.#limits = limits;
    if (this.#resident === owner) return;
    const isNew = !this.#images.has(owner);
    this.#give(owner);
    // the handle keeps it for as long as the memory is this owner's
    if (isNew) this.run(`new ArrayBuffer(${this.#ballast()})`, MOST_FUEL, 'ballast');
  }

  /** Lets go of what its owner remembers: nobody calls the owner again. */
  forget(): void {
    this.#resident = null;
  }

  /** Changes the memory to that of an owner, or to a new one. @throws PolicyError where the engine broke */
  #give(owner: object | null): void {
    if (this.#end !== null) throw this.#end;
    if (this.#resident !== null) this.#images.set(this.#resident, this.#image.save());
    this.#image.load((owner === null ? undefined : this.#images.get(owner)) ?? ImageMemory.empty);
    this.#resident = owner;
  }

  /** What the owner who has the engine remembers. */
  save(): Image {
    return this.#image.save();
  }

  load(image: Image): void {
    this.#image.load(image);
  }

  /**
   * Runs a text within a new budget.
   *
   * @param free turns that are not charged, as for reading it
   * @throws PolicyError step_limit, memory_limit, policy_runtime
   */
  run(source: string, free: number, file: string = FILE): QuickJSHandle {
    return this.#ended(free, () => this.#context.evalCode(source, file, { type: 'global', strict: true }));
  }

  /** Calls a function within a new budget. @throws PolicyError step_limit, memory_limit, policy_runtime */
  call(callee: QuickJSHandle, ...values: QuickJSHandle[]): QuickJSHandle {
    return this.#ended(0, () => this.#context.callFunction(callee, this.#context.undefined, ...values));
  }

  /** Calls a function that returns nothing with numbers and texts. */
  tell(callee: QuickJSHandle, ...values: readonly (number | string)[]): void {
    const handles = values.map((value) =>
      typeof value === 'string' ? this.#context.newString(value) : this.#context.newNumber(value),
    );
    this.call(callee, ...handles).dispose();
    for (const handle of handles) handle.dispose();
  }

  /** The first elements of a list. Its handle is free after it. */
  elements(list: QuickJSHandle, count: number): QuickJSHandle[] {
    const elements = Array.from({ length: count }, (_, i) => this.#context.getProp(list, i));
    list.dispose();
    return elements;
  }

  /** A text that a call returned, or null for undefined. The handle is free after it. */
  textOf(handle: QuickJSHandle): string | null {
    try {
      return this.#context.typeof(handle) === 'string' ? this.#context.getString(handle) : null;
    } finally {
      handle.dispose();
    }
  }

  isTrue(handle: QuickJSHandle): boolean {
    const value = this.#context.dump(handle);
    handle.dispose();
    return value === true;
  }

  /** Lets the engine take so many turns, and some more in which it stops by itself. */
  #allow(turns: number): void {
    this.#allowed = Math.min(turns, MOST_FUEL - GRACE);
    this.#fuel.value = this.#allowed + GRACE;
  }

  /** Counts what was taken. From here on the engine works for the host. */
  #free(): void {
    this.#taken = this.#allowed + GRACE - Number(this.#fuel.value);
    this.#fuel.value = MOST_FUEL;
  }

  /** @param free turns that are not charged */
  #ended(free: number, work: () => ReturnType<QuickJSContext['callFunction']>): QuickJSHandle {
    this.#allow(free + this.#limits.stepLimit * STEP_TURNS);
    let result: ReturnType<typeof work>;
    try {
      result = work();
    } catch (error) {
      throw this.#stopped(error);
    }
    const isOver = this.#fuel.value < GRACE;
    if (result.error !== undefined) throw this.#explain(result.error, isOver);
    this.#free();
    this.#taken = Math.max(0, this.#taken - free);
    if (!isOver) return result.value;
    result.value.dispose();
    throw this.#outOfSteps({});
  }

  /** The engine itself stopped: its memory can be anything now. */
  #stopped(cause: unknown): PolicyError {
    const isOver = this.#fuel.value < 0;
    this.#free();
    this.#end = isOver ? this.#outOfSteps({ cause }) : broken(cause);
    return this.#end;
  }

  #outOfSteps(facts: PolicyErrorFacts): PolicyError {
    const problem = `the call takes more than ${this.#limits.stepLimit} steps. Loop over fewer elements`;
    return new PolicyError('step_limit', problem, facts);
  }

  #explain(error: QuickJSHandle, isOver: boolean): PolicyError {
    const { name, message, line } = this.#thrown(error);
    const facts = line === undefined ? {} : { line };
    if (isOver) return this.#outOfSteps(facts);
    // where there is no room for an error, nothing is thrown
    const isFull = message === 'null' && this.memoryUsed > 0.9 * this.#limits.memoryLimit;
    if ((name === 'InternalError' && message === 'out of memory') || isFull) {
      const limit = this.#limits.memoryLimit * UNIT_BYTES;
      return new PolicyError('memory_limit', `the program takes more than ${limit} bytes. Keep less`, facts);
    }
    return new PolicyError('policy_runtime', `${name}: ${message}`, facts);
  }

  /** What was thrown, which can be anything. The handle is free after it. */
  #thrown(error: QuickJSHandle): { name: string; message: string; line: number | undefined } {
    let value: unknown;
    try {
      value = this.#context.dump(error);
      error.dispose();
    } catch (problem) {
      throw this.#stopped(problem);
    }
    this.#free();
    const { name, message, stack } = (
      typeof value === 'object' && value !== null ? value : {}
    ) as ThrownError;
    if (typeof name !== 'string') {
      const message = typeof value === 'object' ? JSON.stringify(value) : String(value);
      return { name: 'thrown', message: oneLine(message), line: undefined };
    }
    const place = /policy\.js:(\d+)/.exec(String(stack));
    return {
      name: oneLine(name),
      message: oneLine(String(message)),
      line: place === null ? undefined : Number(place[1]),
    };
  }
}

interface ThrownError {
  readonly name?: unknown;
  readonly message?: unknown;
  readonly stack?: unknown;
}

function oneLine(text: string): string {
  return text.slice(0, 200).replace(/\s+/g, ' ');
}

function broken(cause?: unknown): PolicyError {
  const problem = 'the JavaScript engine broke down on this program. Use less memory and recursion';
  return new PolicyError('policy_runtime', problem, cause === undefined ? {} : { cause });
}

/** @throws TKV_CONFIG where the package of the engine is not installed */
export async function newEngine(): Promise<Engine> {
  const memory = new WebAssembly.Memory({ initial: PAGES, maximum: PAGES });
  return new Engine(await newModule(memory), memory);
}
