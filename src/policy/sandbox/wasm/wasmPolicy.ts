/**
 * WebAssembly behind the interface of all languages. A module exports its memory, `alloc(bytes)` and the
 * functions of its slot; it imports nothing. All that it remembers is its memory and its globals.
 */

import { configError, TierKVError } from '../../../runtime/errors.ts';
import type { PlainState } from '../../../sim/control/policy.ts';
import { decodeBase64 } from '../../../sim/random/seedTable.ts';
import {
  type Budget,
  decidedInput,
  type InputShape,
  InputTable,
  invalidDecision,
  Meter,
  PolicyError,
  type PolicyFunction,
  type PolicyInstance,
  type PolicyProgram,
  requireChoicePlace,
  requireIndex,
  requireNumber,
  requireSignature,
  SCALARS,
  type Signature,
} from '../program.ts';
import { exportNames, rewriteModule, stopReasons } from './metering.ts';
import { exportKinds, F64, type FunctionType, I32, type ModuleParts, parseModule, refuse } from './module.ts';

export class WasmPolicy implements PolicyProgram {
  readonly language = 'wasm';
  readonly #parts: ModuleParts;
  readonly #module: WebAssembly.Module;

  /**
   * @param source bytes of the module, or these in base64
   * @throws PolicyError compile, contract
   */
  constructor(source: string | Uint8Array) {
    const bytes = typeof source === 'string' ? decode(source) : Uint8Array.from(source);
    this.#parts = parseModule(bytes);
    if (!WebAssembly.validate(bytes)) refuse('is not valid: its types or numbers do not fit together');
    const { memory, exports } = this.#parts;
    if (memory === null || !exports.some(({ kind }) => kind === exportKinds.memory)) {
      throw new PolicyError('contract', 'the module exports no memory. Export it as "memory"');
    }
    requireType(this.#parts, 'alloc', { params: [I32], results: [I32] }, 'alloc(bytes)');
    this.#module = new WebAssembly.Module(rewriteModule(this.#parts));
  }

  instantiate(budget: Budget = {}): PolicyInstance {
    return new WasmPolicyInstance(this.#parts, () => {
      return new Machine(this.#module, this.#parts.memory?.min ?? 0, budget);
    });
  }
}

class WasmPolicyInstance implements PolicyInstance {
  readonly #parts: ModuleParts;
  readonly #newMachine: () => Machine;
  readonly #functions: WasmFunction[] = [];
  readonly #places: Places;
  readonly #layout: Layout;
  #machine: Machine;
  #alloc: WasmCall;

  constructor(parts: ModuleParts, newMachine: () => Machine) {
    this.#parts = parts;
    this.#newMachine = newMachine;
    this.#layout = new Layout(parts);
    this.#machine = newMachine();
    this.#alloc = this.#callee('alloc');
    this.#places = new Places(this.#machine.memory, (bytes) => this.#machine.run(this.#alloc, [bytes]));
    if (parts.start !== null) this.#machine.run(this.#machine.function(parts.start), []);
    this.#places.follow();
  }

  get stepsUsed(): number {
    return this.#machine.stepsUsed;
  }

  get memoryUsed(): number {
    return this.#machine.memoryUsed;
  }

  has(name: string): boolean {
    return functionNumber(this.#parts, name) >= 0;
  }

  bind(signature: Signature): PolicyFunction {
    requireSignature(signature);
    const { name, inputs } = signature;
    const { params, returnsNumber } = wasmType(signature);
    const type = { params: Array(params).fill(I32), results: returnsNumber ? [F64] : [] };
    const about = inputs.map((input) => `${input.name}${input.kind === 'records' ? ', count' : ''}`);
    requireType(
      this.#parts,
      name,
      type,
      `${name}(${about.join(', ')}${params > about.length ? ', ...' : ''})`,
    );
    this.#layout.tell(inputs, this.#machine);
    const bound = new WasmFunction(signature, {
      machine: this.#machine,
      callee: this.#callee(name),
      places: this.#places,
      layout: this.#layout,
    });
    this.#functions.push(bound);
    return bound;
  }

  snapshot(): PlainState {
    return { ...this.#machine.snapshot(), places: this.#places.snapshot() };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const { places } = state as { readonly places: PlainState };
    this.#places.restore(places);
    if (this.#machine.pages > Machine.pagesOf(state)) {
      this.#machine = this.#newMachine();
      this.#alloc = this.#callee('alloc');
      for (const each of this.#functions) each.runOn(this.#machine, this.#callee(each.signature.name));
    }
    this.#machine.restore(state);
    this.#places.moveTo(this.#machine.memory);
  }

  #callee(name: string): WasmCall {
    return this.#machine.function(functionNumber(this.#parts, name));
  }
}

function functionNumber({ exports }: ModuleParts, name: string): number {
  const found = exports.find((each) => each.name === name && each.kind === exportKinds.function);
  return found === undefined ? -1 : found.index;
}

/** @throws PolicyError contract where the function is missing or has another type */
function requireType(parts: ModuleParts, name: string, wanted: FunctionType, call: string): void {
  const index = functionNumber(parts, name);
  if (index < 0) throw new PolicyError('contract', `the module exports no function ${name}. Export ${call}`);
  const { params, results } = parts.types[parts.functions[index]];
  if (String(params) === String(wanted.params) && String(results) === String(wanted.results)) return;
  const result = wanted.results.length === 0 ? 'nothing' : wanted.results[0] === F64 ? 'f64' : 'i32';
  const takes = `takes ${wanted.params.length} numbers of type i32 and returns ${result}`;
  throw new PolicyError('contract', `${call} ${takes}; the module's has another type`);
}

function decode(text: string): Uint8Array<ArrayBuffer> {
  try {
    return decodeBase64(text);
  } catch {
    return refuse('is not base64. Give the bytes of a .wasm file in base64');
  }
}

// A function of a module that decides. Its parameters are the address of each input's numbers, with the number
// of records behind the address of a list, and last the address of its results where the decision has more
// than one number. A single number is what it returns. Texts come as hashes.

/** Types of the parameters and of the result that a signature asks for. */
function wasmType({ inputs, decision }: Signature): { params: number; returnsNumber: boolean } {
  const params = inputs.reduce((sum, { kind }) => sum + (kind === 'records' ? 2 : 1), 0);
  return {
    params: params + (hasResults(decision) ? 1 : 0),
    returnsNumber: decision.kind !== 'none' && decision.kind !== 'numbers',
  };
}

function hasResults(decision: Signature['decision']): boolean {
  return decision.kind === 'numbers' || (decision.kind === 'choice' && decision.withAmount.length > 0);
}

interface TextField {
  readonly table: InputTable;
  readonly field: number;
  readonly texts: string[];
  readonly hashes: number[];
}

/** The surroundings in which a function runs. */
interface WasmSurroundings {
  readonly machine: Machine;
  readonly callee: WasmCall;
  readonly places: Places;
  readonly layout: Layout;
}

class WasmFunction implements PolicyFunction {
  readonly signature: Signature;
  readonly inputs: readonly InputTable[];
  readonly #places: Places;
  readonly #layout: Layout;
  readonly #inputPlaces: WasmPlace[] = [];
  readonly #results: WasmPlace | null;
  readonly #about: InputTable | undefined;
  readonly #texts: readonly TextField[];
  readonly #arguments: number[] = [];
  #machine: Machine;
  #callee: WasmCall;
  #decision: Float64Array = new Float64Array(SCALARS);

  /** @throws PolicyError contract, and what `alloc` ends in */
  constructor(signature: Signature, { machine, callee, places, layout }: WasmSurroundings) {
    this.signature = signature;
    this.#places = places;
    this.#layout = layout;
    this.#machine = machine;
    this.#callee = callee;
    this.inputs = signature.inputs.map((shape) => {
      const place = places.add();
      const table = new InputTable(shape, (numbers) => places.reserve(place, numbers));
      place.table = table;
      this.#inputPlaces.push(place);
      return table;
    });
    this.#results = hasResults(signature.decision) ? places.add() : null;
    this.#about = this.inputs[decidedInput(signature)];
    this.#texts = this.inputs.flatMap((table) => {
      const { name, fields } = table.shape;
      return Object.entries(fields).flatMap(([text, kind], field) => {
        return kind === 'text' && this.reads(name, text) ? [{ table, field, texts: [], hashes: [] }] : [];
      });
    });
  }

  reads(input: string, field: string): boolean {
    return this.#layout.reads(this.signature.inputs, input, field);
  }

  /** Goes on with another machine of the same module. */
  runOn(machine: Machine, callee: WasmCall): void {
    this.#machine = machine;
    this.#callee = callee;
  }

  call(): Float64Array {
    for (const text of this.#texts) writeHashes(text);
    const values = this.#arguments;
    let count = 0;
    for (let i = 0; i < this.inputs.length; i++) {
      values[count++] = this.#inputPlaces[i].address;
      if (this.inputs[i].shape.kind === 'records') values[count++] = this.inputs[i].rows;
    }
    if (this.#results !== null) {
      const needed = Math.max(this.#about?.rows ?? 0, SCALARS);
      if (needed > this.#results.numbers) this.#places.reserve(this.#results, 2 * needed);
      values[count] = this.#results.address;
      // clears the results of the call before, so that a number that this call leaves out shows
      this.#places.view(this.#results).fill(this.signature.decision.kind === 'numbers' ? NaN : 0);
    }
    let returned: number;
    try {
      returned = this.#machine.run(this.#callee, values);
    } finally {
      this.#places.follow();
    }
    return this.#read(returned);
  }

  #read(returned: number): Float64Array {
    const { name, decision } = this.signature;
    const rows = this.#about?.rows ?? 0;
    const into = this.#decision;
    switch (decision.kind) {
      case 'none':
        return into;
      case 'number':
        into[0] = requireNumber(name, returned);
        return into;
      case 'index':
        into[0] = requireIndex(name, returned, rows);
        return into;
      case 'choice': {
        const place = requireChoicePlace(name, returned, decision);
        const hasAmount = this.#results !== null && decision.withAmount.includes(decision.names[place]);
        into[0] = place;
        into[1] = hasAmount ? requireNumber(name, this.#places.view(this.#results)[0]) : 0;
        return into;
      }
      case 'numbers':
        return this.#readNumbers(rows);
    }
  }

  #readNumbers(rows: number): Float64Array {
    if (this.#decision.length < rows) this.#decision = new Float64Array(2 * rows);
    if (this.#results === null) return this.#decision;
    const results = this.#places.view(this.#results);
    for (let row = 0; row < rows; row++) {
      this.#decision[row] = Number.isNaN(results[row])
        ? invalidDecision(
            this.signature.name,
            `gives record ${row} of ${rows} NaN or nothing. ` +
              'Store a number for each, and guard divisions by 0',
          )
        : results[row];
    }
    return this.#decision;
  }
}

function writeHashes({ table, field, texts, hashes }: TextField): void {
  for (let row = 0; row < table.rows; row++) {
    const place = row * table.width + field;
    const text = table.texts[place] ?? '';
    if (texts[row] !== text) {
      texts[row] = text;
      hashes[row] = textHash(text);
    }
    table.values[place] = hashes[row];
  }
}

// A metered module that runs: its budget, why it stopped, and all that it remembers, which is its memory and
// its globals.

const PAGE_BYTES = 65_536;
/** A unit of memory is 8 bytes. */
const UNIT_BYTES = 8;
const MAX_STEPS = 2 ** 31 - 1;

type WasmCall = (...values: readonly number[]) => number | undefined;

/** Our name of each trap by the engine's message; engines differ in their words. */
const traps: readonly (readonly [RegExp, string])[] = [
  [/unreachable/, 'it reaches an instruction that it marks as unreachable, or an assertion fails'],
  [/memory access/, 'it reads or writes outside its memory'],
  [/divide by zero|remainder by zero/, 'it divides an integer by 0'],
  [/unrepresentable/, 'a number does not fit into the integer it is made to'],
  [/table|function/, 'it calls a function that its table does not have'],
];

class Machine {
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

  /** Memory in use, in units. */
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

// Where the fields of a row lie, told to a module that asks. For each field that it reads, a module exports a
// mutable global of type i32 named `<input>_<field>`, and `<input>_row` for what a row takes; each is set to
// a number of bytes. Then it keeps working when fields are added, and the host fills only what it reads. A
// module that exports no such global gets all fields, in the order of the signature, 8 bytes each.

const FIELD_BYTES = 8;

class Layout {
  /** Numbers of the globals by the name of their export. */
  readonly #globals: ReadonlyMap<string, number>;
  /** Fields of each input that was told, to find two inputs of one name. */
  readonly #told: Map<string, string> = new Map();

  constructor({ exports, globals }: ModuleParts) {
    const told = exports.filter(({ kind, index }) => {
      return kind === exportKinds.global && globals[index].isMutable && globals[index].type === I32;
    });
    this.#globals = new Map(told.map(({ name, index }) => [name, index]));
  }

  /** Whether a module can see a field of an input of the signature. */
  reads(inputs: readonly InputShape[], input: string, field: string): boolean {
    return !inputs.some((each) => this.#isTold(each)) || this.#globals.has(`${input}_${field}`);
  }

  /** Sets the globals that the module has for these inputs. */
  tell(inputs: readonly InputShape[], machine: Machine): void {
    for (const { name, fields } of inputs) {
      const names = Object.keys(fields);
      const told = this.#told.get(name) ?? String(names);
      if (told !== String(names)) throw configError(`input ${name}`, 'has two shapes', 'Rename one.');
      this.#told.set(name, told);
      names.forEach((field, i) => {
        machine.setGlobal(this.#globals.get(`${name}_${field}`), FIELD_BYTES * i);
      });
      machine.setGlobal(this.#globals.get(`${name}_row`), FIELD_BYTES * names.length);
    }
  }

  #isTold({ name, fields }: InputShape): boolean {
    return Object.keys(fields).some((field) => this.#globals.has(`${name}_${field}`));
  }
}

// Where the tables of a module's functions lie in its memory. The module gives the room by its own `alloc`,
// so that no two owners of memory meet.

/** Room for numbers in the memory, which a table may be shown in. */
interface WasmPlace {
  address: number;
  numbers: number;
  table: InputTable | null;
}

class Places {
  readonly #allocate: (bytes: number) => number;
  readonly #all: WasmPlace[] = [];
  #memory: WebAssembly.Memory;
  #words: Float64Array;

  /** @param allocate the module's own, within a budget */
  constructor(memory: WebAssembly.Memory, allocate: (bytes: number) => number) {
    this.#memory = memory;
    this.#allocate = allocate;
    this.#words = new Float64Array(memory.buffer);
  }

  /** A place without room yet. */
  add(): WasmPlace {
    const place: WasmPlace = { address: 0, numbers: 0, table: null };
    this.#all.push(place);
    return place;
  }

  /** Gives a place room for `numbers` numbers. @throws PolicyError contract, and what `alloc` ends in */
  reserve(place: WasmPlace, numbers: number): Float64Array {
    const bytes = 8 * numbers;
    let address: number;
    try {
      address = this.#allocate(bytes) >>> 0;
    } finally {
      this.follow();
    }
    if (address % 8 !== 0 || address + bytes > 8 * this.#words.length) {
      const problem = `alloc(${bytes}) returns ${address}. Return the address of ${bytes} bytes of memory`;
      throw new PolicyError('contract', `${problem}, a multiple of 8`);
    }
    place.address = address;
    place.numbers = numbers;
    return this.view(place);
  }

  view({ address, numbers }: WasmPlace): Float64Array {
    return this.#words.subarray(address / 8, address / 8 + numbers);
  }

  /** Shows the tables where the memory is now, if it has moved. */
  follow(): void {
    // a buffer that was left behind has no bytes
    if (this.#words.length === 0) this.moveTo(this.#memory);
  }

  moveTo(memory: WebAssembly.Memory): void {
    this.#memory = memory;
    this.#words = new Float64Array(memory.buffer);
    for (const place of this.#all) if (place.table !== null) place.table.values = this.view(place);
  }

  snapshot(): PlainState {
    return this.#all.map(({ address, numbers }) => [address, numbers]);
  }

  /** @throws TKV_STATE where other functions were bound before the snapshot */
  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const places = state as readonly (readonly [number, number])[];
    if (places.length !== this.#all.length) {
      const remedy = 'Bind the same functions in the same order before restoring.';
      throw new TierKVError('TKV_STATE', `the state is of an instance with other functions. ${remedy}`);
    }
    places.forEach(([address, numbers], i) => {
      this.#all[i].address = address;
      this.#all[i].numbers = numbers;
    });
  }
}

// Texts as numbers, for programs that have numbers only.

const OFFSET = 0x811c9dc5;
const PRIME = 0x01000193;

/**
 * FNV-1a of 32 bits over the text's UTF-8, as an integer from 0; two texts can have the same.
 * http://www.isthe.com/chongo/tech/comp/fnv/
 */
export function textHash(text: string): number {
  let hash = OFFSET;
  for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, PRIME);
  return hash >>> 0;
}
