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

import type { QuickJSContext, QuickJSHandle, QuickJSRuntime, QuickJSWASMModule } from 'quickjs-emscripten';
import { invariant, TierKVError } from '../../../runtime/errors.ts';
import type { PlainState } from '../../../sim/control/policy.ts';
import {
  decidedInput,
  type InputShape,
  Meter,
  mentions,
  PolicyError,
  type PolicyErrorFacts,
  type Signature,
} from '../program.ts';
import { exportNames, meterEngine } from '../wasm/metering.ts';
import { parseModule } from '../wasm/module.ts';

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
 * Bytes of the engine's own stack: calls 80 deep, blocks 40 deep. Each exception lists all calls that are active, so a
 * deeper stack makes exceptions dear.
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
  /** All that the engine's present owner remembers. */
  readonly image: ImageMemory;
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
    this.image = new ImageMemory(memory);
    this.#ownBytes = this.image.end;
  }

  /** Most of its memory that the program had since it was loaded, in units. */
  get memoryUsed(): number {
    return Math.max(0, Math.ceil((this.image.lastUsed() - this.#ownBytes - this.#ballast()) / UNIT_BYTES));
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

  /** Lets go of what its owner remembers. The owner must not be called again. */
  forget(): void {
    this.#resident = null;
  }

  /** Changes the memory to the memory of an owner, or to a new one. @throws PolicyError where the engine broke */
  #give(owner: object | null): void {
    if (this.#end !== null) throw this.#end;
    if (this.#resident !== null) this.#images.set(this.#resident, this.image.save());
    this.image.load((owner === null ? undefined : this.#images.get(owner)) ?? ImageMemory.empty);
    this.#resident = owner;
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

  /** Lets the engine take `turns` turns, and `GRACE` more in which it stops by itself. */
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
    // a full memory has no room for an error object: the engine throws null
    const isFull = message === 'null' && this.memoryUsed > 0.9 * this.#limits.memoryLimit;
    if ((name === 'InternalError' && message === 'out of memory') || isFull) {
      const limit = this.#limits.memoryLimit * UNIT_BYTES;
      return new PolicyError('memory_limit', `the program takes more than ${limit} bytes. Keep less`, facts);
    }
    return new PolicyError('policy_runtime', `${name}: ${message}`, facts);
  }

  /** Reads a thrown value of any kind, and frees its handle. */
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

// The WebAssembly module of QuickJS, metered: it counts functions that begin and turns of loops in the
// engine itself, so that a built-in method pays for what it does over a long text or array. Read and
// rewritten once in a process.
//
// Its file in the installed package is all that the simulator ever reads.

/** A new instance of the module, with the turns that it may still take. */
interface MeteredModule {
  readonly quickjs: QuickJSWASMModule;
  readonly fuel: WebAssembly.Global;
}

const MOST_FUEL: number = 2 ** 31 - 1;

/** Two packages, the second one installed with the first. */
const PACKAGE = 'quickjs-emscripten';
const MODULE = '@jitl/quickjs-wasmfile-release-sync/wasm';

let metered: Promise<WebAssembly.Module> | null = null;

/**
 * @param memory that the module gets
 * @throws TKV_CONFIG where the package of the engine is not installed
 */
async function newModule(memory: WebAssembly.Memory): Promise<MeteredModule> {
  let quickjs: typeof import('quickjs-emscripten');
  try {
    quickjs = await import('quickjs-emscripten');
    metered ??= meteredModule();
    await metered;
  } catch (cause) {
    metered = null;
    const remedy = 'Install it: npm install quickjs-emscripten';
    throw new TierKVError(
      'TKV_CONFIG',
      `language javascript needs the package quickjs-emscripten, which is not installed. ${remedy}`,
      { field: 'language', cause },
    );
  }
  const module = await metered;
  let fuel: WebAssembly.Global | undefined;
  const variant = quickjs.newVariant(quickjs.RELEASE_SYNC, {
    wasmMemory: memory,
    emscriptenModule: {
      instantiateWasm(imports, onSuccess) {
        const instance = new WebAssembly.Instance(module, imports);
        // the rewriter exports the global under this name
        fuel = instance.exports[exportNames.fuel] as WebAssembly.Global;
        // its own start-up is not a program's
        fuel.value = MOST_FUEL;
        onSuccess(instance);
        return instance.exports;
      },
    },
  });
  const instance = await quickjs.newQuickJSWASMModuleFromVariant(variant);
  invariant(fuel !== undefined, 'the engine was not made from its metered module');
  return { quickjs: instance, fuel };
}

async function meteredModule(): Promise<WebAssembly.Module> {
  const [{ createRequire }, { readFile }] = await Promise.all([
    import('node:module'),
    import('node:fs/promises'),
  ]);
  const own = createRequire(import.meta.url);
  const file = createRequire(own.resolve(PACKAGE)).resolve(MODULE);
  return new WebAssembly.Module(meterEngine(parseModule(await readFile(file), true)));
}

// The memory of an engine as plain data: the pages in which it differs from the engine when it was new. All
// that a JavaScript policy can remember lies there, so nothing of it is hidden.

const PAGE_WORDS = 1024;

export interface Image {
  readonly [part: string]: PlainState;
  /** Numbers of the pages, ascending. */
  readonly pages: Uint32Array;
  /** Their contents, one after the other. */
  readonly words: Uint32Array;
}

class ImageMemory {
  readonly #memory: WebAssembly.Memory;
  /** The memory as it was when the engine was new, up to the last word that is not 0. */
  readonly #pristine: Uint32Array;

  constructor(memory: WebAssembly.Memory) {
    this.#memory = memory;
    const words = Math.ceil(this.lastUsed() / 4 / PAGE_WORDS) * PAGE_WORDS;
    this.#pristine = new Uint32Array(memory.buffer).slice(0, words);
  }

  /** Bytes of the engine when it was new. */
  get end(): number {
    return this.#pristine.length * 4;
  }

  /** Bytes up to the last that is not 0. */
  lastUsed(): number {
    const words = new Uint32Array(this.#memory.buffer);
    let length = words.length;
    while (length > 0 && words[length - 1] === 0) length--;
    return length * 4;
  }

  static readonly empty: Image = { pages: new Uint32Array(), words: new Uint32Array() };

  save(): Image {
    const words = new Uint32Array(this.#memory.buffer);
    const pages: number[] = [];
    for (let start = 0; start < words.length; start += PAGE_WORDS) {
      if (this.#differs(words, start)) pages.push(start / PAGE_WORDS);
    }
    const contents = new Uint32Array(pages.length * PAGE_WORDS);
    pages.forEach((page, i) => {
      contents.set(words.subarray(page * PAGE_WORDS, (page + 1) * PAGE_WORDS), i * PAGE_WORDS);
    });
    return { pages: Uint32Array.from(pages), words: contents };
  }

  load({ pages, words }: Image): void {
    const all = new Uint32Array(this.#memory.buffer);
    all.set(this.#pristine);
    all.fill(0, this.#pristine.length);
    pages.forEach((page, i) => {
      all.set(words.subarray(i * PAGE_WORDS, (i + 1) * PAGE_WORDS), page * PAGE_WORDS);
    });
  }

  #differs(words: Uint32Array, start: number): boolean {
    const before = this.#pristine;
    const end = start + PAGE_WORDS;
    if (start >= before.length) {
      for (let i = start; i < end; i++) if (words[i] !== 0) return true;
      return false;
    }
    for (let i = start; i < end; i++) if (words[i] !== before[i]) return true;
    return false;
  }
}

// JavaScript that runs inside of the engine: what is taken away before a policy's program is read, and what
// stands between the host's numbers and a function of it. Only names of the host and numbers get into it.

/** Turns of the engine for the host's own code at most, which no program pays for. */
export const OWN_CODE = 2_000_000;

/** Runs first. Dates, promises, proxies and regular expressions are not there at all. */
const takenAway: string = `'use strict';
(() => {
  for (const name of ['eval', 'SharedArrayBuffer', 'Atomics', 'WeakRef', 'FinalizationRegistry']) {
    delete globalThis[name];
  }
  // the host's own code uses these: a program cannot replace them
  for (const name of ['Float64Array', 'Array', 'Object', 'String']) {
    Object.defineProperty(globalThis, name, { writable: false, configurable: false });
  }
  Object.defineProperty(Math, 'random', {
    value() { throw new TypeError('a policy has no Math.random. Decide by what it is given'); },
  });
})();
`;

/** Numbers that the host sees in the engine's memory: rows of each input, results, then the inputs. */
export const shared = { rows: 0, results: 1, firstInput: 2 } as const;

/**
 * An expression that gives \`[call, resize, mark, text]\`: decide; make shared numbers of a length; mark
 * the first two of them; set a text.
 */
export function bindingCode(signature: Signature, source: string): string {
  const { name, inputs, decision } = signature;
  const shown = inputs.map((input, i) => inputCode(input, i, source));
  const values = inputs.map((_, i) => `input${i}.value(rows[${i}])`);
  return `(() => {
  'use strict';
  let rows = new Float64Array(0);
  let results = new Float64Array(0);
  const shared = [
    { get: () => rows, set: (numbers) => { rows = numbers; } },
    { get: () => results, set: (numbers) => { results = numbers; } },
  ];
  ${shown.join('\n  ')}
  const kindOf = (value) => {
    if (value === null || value === undefined) return String(value);
    return Array.isArray(value) ? 'an array' : typeof value === 'object' ? 'an object' : 'a ' + typeof value;
  };
  const call = () => {
    const value = ${name}(${values.join(', ')});
    ${decisionCode(decision, decidedInput(signature))}
  };
  return [
    call,
    (which, length) => { shared[which].set(new Float64Array(length)); },
    (which, number) => { const numbers = shared[which].get(); numbers[0] = number; numbers[1] = 2 * number; },
    (input, place, text) => { shared[input].texts[place] = text; },
  ];
})()`;
}

function inputCode({ kind, fields }: InputShape, i: number, source: string): string {
  const names = Object.keys(fields);
  const getters = names.flatMap((field, place) => {
    if (!mentions(source, field)) return [];
    const at = `[this.#start + ${place}]`;
    const read = {
      int: `data${at}`,
      float: `data${at}`,
      bool: `data${at} !== 0`,
      text: `(texts${at} ?? '')`,
    };
    return [`get ${field}() { return ${read[fields[field]]}; }`];
  });
  const list = `(count) => {
      for (let row = all.length; row < count; row++) all.push(new Row(row * ${names.length}));
      return lists[count] ??= Object.freeze(all.slice(0, count));
    }`;
  return `const input${i} = (() => {
    let data = new Float64Array(0);
    const texts = [];
    class Row {
      #start;
      constructor(start) { this.#start = start; Object.freeze(this); }
      ${getters.join('\n      ')}
    }
    Object.freeze(Row.prototype);
    Object.freeze(Row);
    const all = [new Row(0)];
    const lists = [];
    shared.push({ get: () => data, set: (numbers) => { data = numbers; }, texts });
    return { value: ${kind === 'record' ? '() => all[0]' : list} };
  })();`;
}

/** Writes the decision into \`results\`, or returns what is wrong with it. */
function decisionCode(decision: Signature['decision'], about: number): string {
  const wants = (what: string): string => `return 'returns ' + kindOf(value) + '. Return ${what}';`;
  switch (decision.kind) {
    case 'none':
      return '';
    case 'number':
    case 'index':
      return `if (typeof value !== 'number') ${wants('a number')}
    results[0] = value;`;
    case 'numbers':
      return `const count = rows[${about}];
    if (!Array.isArray(value) || value.length !== count) {
      const length = Array.isArray(value) ? ' of ' + value.length : '';
      return 'returns ' + kindOf(value) + length + '. Return an array of ' + count + ' numbers';
    }
    for (let i = 0; i < count; i++) {
      const number = value[i];
      if (typeof number !== 'number') return 'returns an array with ' + kindOf(number) + '. Return numbers';
      results[i] = number;
    }`;
    case 'choice': {
      const names = JSON.stringify(decision.names);
      const withAmount = JSON.stringify(decision.withAmount);
      return `const isPair = Array.isArray(value) && value.length === 2;
    const choice = isPair ? value[0] : value;
    if (typeof choice !== 'string') ${wants('one of its choices as a text')}
    const place = ${names}.indexOf(choice);
    if (place < 0) return 'returns "' + choice.slice(0, 40) + '". Return one of ' + ${JSON.stringify(names)};
    const needsAmount = ${withAmount}.includes(choice);
    if (needsAmount !== isPair || (isPair && typeof value[1] !== 'number')) {
      const right = needsAmount ? '["' + choice + '", amount]' : '"' + choice + '"';
      return 'returns "' + choice + '". Return ' + right;
    }
    results[0] = place;
    results[1] = isPair ? value[1] : 0;`;
    }
  }
}
