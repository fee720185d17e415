/**
 * One QuickJS engine in WebAssembly: a runtime and a context of its own, with a budget for each call. Several
 * instances of a program take turns in it, each with its own image of the memory.
 *
 * The engine asks whether to go on once in 10,000 calls of functions and jumps back, and carries what is left
 * over from call to call. So steps are counted in whole ten thousands: exact for one build of the engine and
 * one history of calls, which the image holds too. Its own limit of memory does not count what small values
 * take, so the memory itself is of a fixed size.
 */

import type { QuickJSContext, QuickJSHandle, QuickJSRuntime, QuickJSWASMModule } from 'quickjs-emscripten';
import { TierKVError } from '../../../runtime/errors.ts';
import { Meter } from '../meter.ts';
import { PolicyError } from '../policyError.ts';
import { takenAway } from './guestCode.ts';
import { type Image, ImageMemory } from './image.ts';

/** Functions called and jumps back between two questions of the engine; a constant of its build. */
const STEPS_PER_POLL = 10_000;
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
  #polls = 0;
  #isBroken = false;
  /** Whose image is in the memory now. */
  #resident: object | null = null;
  #images: WeakMap<object, Image> = new WeakMap();

  /** @param memory of the module, which cannot grow */
  constructor(module: QuickJSWASMModule, memory: WebAssembly.Memory) {
    this.memory = memory;
    this.#runtime = module.newRuntime();
    this.#runtime.setMaxStackSize(STACK_BYTES);
    this.#runtime.setInterruptHandler(() => ++this.#polls > this.#limits.stepLimit / STEPS_PER_POLL);
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
    return this.#isBroken;
  }

  get stepsUsed(): number {
    return Math.min(this.#polls * STEPS_PER_POLL, this.#limits.stepLimit);
  }

  /** Checks the text of a program without running it. @throws PolicyError compile */
  check(source: string): void {
    if (source.length > MAX_SOURCE) {
      const problem = `the program has ${source.length} characters, over ${MAX_SOURCE}. Make it shorter`;
      throw new PolicyError('compile', problem);
    }
    this.#give(null);
    this.#limits = new Meter();
    this.#polls = 0;
    let result: ReturnType<QuickJSContext['evalCode']>;
    try {
      result = this.#context.evalCode(source, FILE, { type: 'global', strict: true, compileOnly: true });
    } catch (cause) {
      this.#isBroken = true;
      throw new PolicyError('compile', 'the program nests too deep. Take it apart', { cause });
    }
    if (result.error === undefined) {
      result.value.dispose();
      return;
    }
    const { message, line } = this.#thrown(result.error);
    throw new PolicyError('compile', message, line === undefined ? {} : { line });
  }

  /** Gives the engine to an owner: as it was left, or new with the limits of a budget. */
  enter(owner: object, limits: Meter): void {
    this.#limits = limits;
    if (this.#resident === owner) return;
    const isNew = !this.#images.has(owner);
    this.#give(owner);
    // the handle keeps it for as long as the memory is this owner's
    if (isNew) this.run(`new ArrayBuffer(${this.#ballast()})`, 'ballast');
  }

  /** Lets go of what its owner remembers: nobody calls the owner again. */
  forget(): void {
    this.#resident = null;
  }

  /** Changes the memory to that of an owner, or to a new one. @throws PolicyError where the engine broke */
  #give(owner: object | null): void {
    if (this.#isBroken) throw broken();
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

  /** Runs a text within a new budget. @throws PolicyError step_limit, memory_limit, policy_runtime */
  run(source: string, file: string = FILE): QuickJSHandle {
    return this.#ended(() => this.#context.evalCode(source, file, { type: 'global', strict: true }));
  }

  /** Calls a function within a new budget. @throws PolicyError step_limit, memory_limit, policy_runtime */
  call(callee: QuickJSHandle, ...values: QuickJSHandle[]): QuickJSHandle {
    return this.#ended(() => this.#context.callFunction(callee, this.#context.undefined, ...values));
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

  #ended(work: () => ReturnType<QuickJSContext['callFunction']>): QuickJSHandle {
    this.#polls = 0;
    let result: ReturnType<typeof work>;
    try {
      result = work();
    } catch (error) {
      // the engine itself stopped: its memory can be anything now
      this.#isBroken = true;
      throw broken(error);
    }
    if (result.error === undefined) return result.value;
    throw this.#explain(result.error);
  }

  #explain(error: QuickJSHandle): PolicyError {
    const isInterrupted = this.#polls > this.#limits.stepLimit / STEPS_PER_POLL;
    const { name, message, line } = this.#thrown(error);
    const facts = line === undefined ? {} : { line };
    if (isInterrupted) {
      const problem = `the call takes more than ${this.#limits.stepLimit} steps. Loop over fewer elements`;
      return new PolicyError('step_limit', problem, facts);
    }
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
      this.#isBroken = true;
      throw broken(problem);
    }
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
  let quickjs: typeof import('quickjs-emscripten');
  try {
    quickjs = await import('quickjs-emscripten');
  } catch (cause) {
    const remedy = 'Install it: npm install quickjs-emscripten';
    throw new TierKVError(
      'TKV_CONFIG',
      `language javascript needs the package quickjs-emscripten, which is not installed. ${remedy}`,
      { field: 'language', cause },
    );
  }
  const wasmMemory = new WebAssembly.Memory({ initial: PAGES, maximum: PAGES });
  const variant = quickjs.newVariant(quickjs.RELEASE_SYNC, { wasmMemory });
  return new Engine(await quickjs.newQuickJSWASMModuleFromVariant(variant), wasmMemory);
}
