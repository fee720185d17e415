/**
 * Starlark behind the interface of all languages: a program is read, resolved and compiled once; an
 * instance has run the module once; a function of it decides on records. The globals of an instance are
 * frozen after the module has run, so a call depends on its arguments and on the policy's state alone.
 */

import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import type { PlainState } from '../../../sim/control/policy.ts';
import {
  type Budget,
  decidedInput,
  type InputShape,
  InputTable,
  invalidDecision,
  Meter,
  mentions,
  PolicyError,
  type PolicyFunction,
  type PolicyInstance,
  type PolicyProgram,
  quoted,
  requireChoice,
  requireIndex,
  requireNumber,
  requireSignature,
  SCALARS,
  type Signature,
} from '../program.ts';
import type { FunctionNode } from './ast.ts';
import { builtins } from './builtins.ts';
import { type CompiledProgram, compileModule } from './compiler.ts';
import { parse } from './parser.ts';
import { chargeFunction, resolve } from './resolver.ts';
import { Thread } from './thread.ts';
import {
  freeze,
  MAX_VALUE_DEPTH,
  RecordShape,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarRange,
  StarRecord,
  StarTuple,
  typeName,
  type Value,
} from './value.ts';

export class StarlarkProgram {
  readonly #module: FunctionNode;
  readonly #functionCount: number;
  #compiled: CompiledProgram | null = null;

  /** @throws PolicyError compile, with the line and what to write instead */
  constructor(source: string) {
    checkInputs({ source }, { source: is.text() });
    this.#module = parse(source);
    this.#functionCount = resolve(this.#module, [...builtins.keys()]);
    chargeFunction(this.#module);
  }

  /**
   * Runs the module within the budget of one call.
   *
   * @throws PolicyError step_limit, memory_limit, policy_runtime
   */
  instantiate(budget: Budget = {}): StarlarkInstance {
    const thread = new Thread(new Meter(budget), this.#functionCount);
    this.#compiled ??= compileModule(this.#module);
    return new StarlarkInstance(thread, this.#module, this.#compiled.run(thread));
  }
}

export class StarlarkInstance {
  readonly #thread: Thread;
  readonly #globals: ReadonlyMap<string, Value>;

  /** Freezes `values`, the module's variables by slot after its run. */
  constructor(thread: Thread, module: FunctionNode, values: readonly (Value | undefined)[]) {
    const globals = new Map<string, Value>();
    values.forEach((value, slot) => {
      if (value === undefined) return;
      freeze(value);
      globals.set(module.slots[slot], value);
    });
    this.#thread = thread;
    this.#globals = globals;
  }

  get meter(): Meter {
    return this.#thread.meter;
  }

  global(name: string): Value | undefined {
    return this.#globals.get(name);
  }

  /**
   * The function of that name.
   *
   * @param names of its parameters, for the error
   * @throws PolicyError contract where it is missing or takes another number of arguments
   */
  function(name: string, arity: number, names: readonly string[] = []): StarFunction {
    const value = this.#globals.get(name);
    const named = names.length === arity ? names.join(', ') : `${arity} parameters`;
    if (value === undefined) {
      throw new PolicyError('contract', `the function ${name} is missing. Define it: def ${name}(${named})`);
    }
    if (!(value instanceof StarFunction)) {
      throw new PolicyError('contract', `${name} is a function in a policy, not ${typeName(value)}`);
    }
    if (!value.isBuiltin && (arity < value.required || arity > value.arity)) {
      throw new PolicyError(
        'contract',
        `${name} gets ${arity} arguments in a policy. Define it: def ${name}(${named})`,
      );
    }
    return value;
  }

  /**
   * Calls a function within a new budget.
   *
   * @throws PolicyError step_limit, memory_limit, policy_runtime, with the line
   */
  call(callee: StarFunction, values: readonly Value[]): Value {
    this.#thread.reset();
    return callee.direct !== null && callee.arity === values.length
      ? callee.direct(...values)
      : callee.call(this.#thread.meter, values, [], 0);
  }
}

// A decision out of what a Starlark function returned.

type DecisionChoice = Extract<Signature['decision'], { kind: 'choice' }>;

class DecisionReader {
  readonly #name: string;
  readonly #decision: Signature['decision'];
  readonly #about: InputTable | undefined;
  #result: Float64Array = new Float64Array(SCALARS);

  constructor(signature: Signature, tables: readonly InputTable[]) {
    this.#name = signature.name;
    this.#decision = signature.decision;
    this.#about = tables[decidedInput(signature)];
  }

  /** @throws PolicyError invalid_decision */
  read(value: Value): Float64Array {
    const rows = this.#about?.rows ?? 0;
    switch (this.#decision.kind) {
      case 'none':
        break;
      case 'number':
        this.#result[0] = this.#number(value);
        break;
      case 'index':
        if (typeof value !== 'number') this.#refuse(value, `an int from 0 to ${rows - 1}`);
        this.#result[0] = requireIndex(this.#name, value, rows);
        break;
      case 'numbers':
        this.#numbers(value, rows);
        break;
      case 'choice':
        this.#choice(value, this.#decision);
    }
    return this.#result;
  }

  #numbers(value: Value, rows: number): void {
    const isList = value instanceof StarList || value instanceof StarTuple;
    if (!isList) this.#refuse(value, `a list of ${rows} numbers`);
    const { length } = value.items;
    if (length !== rows)
      invalidDecision(this.#name, `returns ${length} numbers. Return ${rows}, one a record`);
    if (this.#result.length < rows) this.#result = new Float64Array(2 * rows);
    for (let row = 0; row < rows; row++) this.#result[row] = this.#number(value.items[row], 'a list with ');
  }

  #choice(value: Value, decision: DecisionChoice): void {
    const isPair = value instanceof StarTuple && value.items.length === 2;
    const choice = isPair ? value.items[0] : value;
    if (typeof choice !== 'string') this.#refuse(value, `one of ${quoted(decision.names)}`);
    this.#result[0] = requireChoice(this.#name, choice, decision);
    const needsAmount = decision.withAmount.includes(choice);
    if (needsAmount !== isPair) {
      const remedy = needsAmount ? `("${choice}", amount)` : `"${choice}"`;
      invalidDecision(
        this.#name,
        `returns "${choice}" ${isPair ? 'with' : 'without'} an amount. Return ${remedy}`,
      );
    }
    this.#result[1] = isPair ? this.#number(value.items[1]) : 0;
  }

  #number(value: Value, within = ''): number {
    if (typeof value === 'number') return value;
    if (value instanceof StarFloat) return requireNumber(this.#name, value.value);
    const remedy = typeof value === 'boolean' ? ': int(x) for a bool' : '';
    return this.#refuse(value, `${within === '' ? 'an int or a float' : 'ints and floats'}${remedy}`, within);
  }

  #refuse(value: Value, wanted: string, within = ''): never {
    const what = value instanceof StarRecord ? `a record of ${typeName(value)}` : typeName(value);
    const why = value === null && within === '' ? ', as without "return" on its way' : '';
    return invalidDecision(this.#name, `returns ${within}${what}${why}. Return ${wanted}`);
  }
}

// The inputs of a call as Starlark sees them: a record, or a tuple of records.

/** Records are made once and filled before each call; a program cannot keep one. */
class RecordInput {
  readonly table: InputTable;
  readonly #shape: RecordShape;
  readonly #kinds: readonly string[];
  readonly #records: StarRecord[] = [];
  /** Tuples, indexed by number of rows. */
  readonly #tuples: StarTuple[] = [];

  constructor(shape: InputShape) {
    this.table = new InputTable(shape, (numbers) => new Float64Array(numbers));
    this.#shape = new RecordShape(shape.name, shape.fields);
    this.#kinds = Object.values(shape.fields);
  }

  /** The table's present rows. */
  value(): Value {
    const { rows, shape } = this.table;
    for (let row = 0; row < rows; row++) this.#fill(row);
    if (shape.kind === 'record') return this.#records[0];
    this.#tuples[rows] ??= new StarTuple(this.#records.slice(0, rows));
    return this.#tuples[rows];
  }

  #fill(row: number): void {
    const { values, texts, width } = this.table;
    this.#records[row] ??= new StarRecord(this.#shape, new Array<Value>(width).fill(0));
    const into = this.#records[row].values;
    const start = row * width;
    for (let field = 0; field < width; field++) {
      const kind = this.#kinds[field];
      if (kind === 'text') into[field] = texts[start + field] ?? '';
      else into[field] = kind === 'bool' ? values[start + field] !== 0 : values[start + field];
    }
  }
}

// Starlark behind the interface of all languages. A function gets its inputs as records, and the policy's
// state as one more parameter where it has one.

export class StarlarkPolicy implements PolicyProgram {
  readonly language = 'starlark';
  readonly #program: StarlarkProgram;
  readonly #source: string;

  /** @throws PolicyError compile */
  constructor(source: string) {
    this.#program = new StarlarkProgram(source);
    this.#source = source;
  }

  instantiate(budget: Budget = {}): PolicyInstance {
    return new StarlarkPolicyInstance(this.#program.instantiate(budget), this.#source);
  }
}

class StarlarkPolicyInstance implements PolicyInstance {
  readonly #instance: StarlarkInstance;
  readonly #source: string;
  readonly #memory: { state: StarDict } = { state: new StarDict() };

  constructor(instance: StarlarkInstance, source: string) {
    this.#instance = instance;
    this.#source = source;
  }

  get stepsUsed(): number {
    return this.#instance.meter.stepsUsed;
  }

  get memoryUsed(): number {
    return this.#instance.meter.memoryUsed;
  }

  has(name: string): boolean {
    return this.#instance.global(name) instanceof StarFunction;
  }

  bind(signature: Signature): PolicyFunction {
    requireSignature(signature);
    const { name, inputs } = signature;
    const global = this.#instance.global(name);
    const takesState = global instanceof StarFunction && global.required === inputs.length + 1;
    const names = [...inputs.map((input) => input.name), ...(takesState ? ['state'] : [])];
    const callee = this.#instance.function(name, names.length, names);
    const memory = takesState ? this.#memory : null;
    return new StarlarkPolicyFunction(this.#instance, callee, signature, memory, this.#source);
  }

  snapshot(): PlainState {
    return this.#memory.state.size === 0 ? null : writeState(this.#memory.state);
  }

  restore(state: PlainState): void {
    const value = state === null ? new StarDict() : readState(state);
    if (value instanceof StarDict) this.#memory.state = value;
  }
}

class StarlarkPolicyFunction implements PolicyFunction {
  readonly signature: Signature;
  readonly inputs: readonly InputTable[];
  readonly #instance: StarlarkInstance;
  readonly #callee: StarFunction;
  readonly #source: string;
  readonly #memory: { readonly state: StarDict } | null;
  readonly #records: readonly RecordInput[];
  readonly #arguments: Value[] = [];
  readonly #decision: DecisionReader;

  constructor(
    instance: StarlarkInstance,
    callee: StarFunction,
    signature: Signature,
    memory: { readonly state: StarDict } | null,
    source: string,
  ) {
    this.signature = signature;
    this.#instance = instance;
    this.#callee = callee;
    this.#source = source;
    this.#memory = memory;
    this.#records = signature.inputs.map((shape) => new RecordInput(shape));
    this.inputs = this.#records.map(({ table }) => table);
    this.#decision = new DecisionReader(signature, this.inputs);
  }

  reads(_: string, field: string): boolean {
    return mentions(this.#source, field);
  }

  call(): Float64Array {
    const records = this.#records;
    for (let i = 0; i < records.length; i++) this.#arguments[i] = records[i].value();
    if (this.#memory === null) return this.#decision.read(this.#instance.call(this.#callee, this.#arguments));
    this.#arguments[records.length] = this.#memory.state;
    const { state } = this.#memory;
    let result: Value;
    try {
      result = this.#instance.call(this.#callee, this.#arguments);
    } catch (error) {
      releaseState(state);
      throw error;
    }
    this.#chargeState(state);
    return this.#decision.read(result);
  }

  /** The state costs a step for each of its values, and fits in what one call may allocate. */
  #chargeState(state: StarDict): void {
    const { meter } = this.#instance;
    const size = measureState(state, meter.memoryLimit);
    if (size > meter.memoryLimit) {
      throw new PolicyError(
        'memory_limit',
        `the state holds more than ${meter.memoryLimit} units. Forget some`,
      );
    }
    meter.steps -= size;
    if (meter.steps >= 0) return;
    meter.steps = 0;
    const problem = `the call and its state of ${size} values take more than ${meter.stepLimit} steps`;
    throw new PolicyError('step_limit', `${problem}. Keep less in the state`);
  }
}

// Memory of a Starlark policy: a dict that its functions get as a last parameter, where they ask for it.
// It holds plain values only, so that it can be written down. Lists and dicts that are shared stay shared.

/**
 * Counts values, and refuses values that cannot be written down.
 *
 * @param most stops counting there: shared values count each time, and could be very many
 * @throws PolicyError policy_runtime
 */
function measureState(value: Value, most: number, depth = 0): number {
  if (value === null || typeof value !== 'object') {
    return typeof value === 'string' ? 1 + Math.floor(value.length / 8) : 1;
  }
  if (depth > MAX_VALUE_DEPTH) {
    throw new PolicyError('policy_runtime', `the state nests deeper than ${MAX_VALUE_DEPTH} values`);
  }
  if (value instanceof StarFloat || value instanceof StarRange) return 1;
  let size = 1;
  if (value instanceof StarList || value instanceof StarTuple) {
    for (const item of value.items) {
      if (size > most) break;
      size += measureState(item, most - size, depth + 1);
    }
    return size;
  }
  if (value instanceof StarDict) {
    for (const [key, item] of value.entries()) {
      if (size > most) break;
      size += measureState(key, most - size, depth + 1) + measureState(item, most - size, depth + 1);
    }
    return size;
  }
  throw new PolicyError(
    'policy_runtime',
    `the state holds ${typeName(value)}. Keep numbers, texts, lists, tuples and dicts in it`,
  );
}

/** Frees what the loops of a failed call still hold on to. */
function releaseState(value: Value, seen: Set<Value> = new Set()): void {
  if (value === null || typeof value !== 'object' || seen.has(value)) return;
  seen.add(value);
  if (value instanceof StarList || value instanceof StarDict) value.loops = 0;
  if (value instanceof StarList || value instanceof StarTuple) {
    for (const item of value.items) releaseState(item, seen);
  } else if (value instanceof StarDict) {
    for (const [, item] of value.entries()) releaseState(item, seen);
  }
}

/** A value that was measured, as plain data. Ints stand bare, everything that holds others in an object. */
function writeState(value: Value, seen: Map<Value, number> = new Map()): PlainState {
  if (value === null || typeof value !== 'object') return value;
  if (value instanceof StarFloat) return { float: value.value };
  if (value instanceof StarRange) return { range: [value.start, value.step, value.length] };
  if (value instanceof StarTuple) return { tuple: value.items.map((item) => writeState(item, seen)) };
  const before = seen.get(value);
  if (before !== undefined) return { same: before };
  seen.set(value, seen.size);
  if (value instanceof StarList) return { list: value.items.map((item) => writeState(item, seen)) };
  if (value instanceof StarDict) {
    return {
      dict: Array.from(value.entries(), ([key, item]) => [writeState(key, seen), writeState(item, seen)]),
    };
  }
  throw new PolicyError('policy_runtime', `the state holds ${typeName(value)}`);
}

/** The value that `writeState` wrote. */
function readState(state: PlainState, seen: Value[] = []): Value {
  if (state === null || typeof state !== 'object') return state;
  // the state is what `writeState` made
  const written = state as Readonly<Record<string, readonly PlainState[]>> & {
    readonly float?: number;
    readonly same?: number;
  };
  if (written.float !== undefined) return new StarFloat(written.float);
  if (written.same !== undefined) return seen[written.same];
  if (written.tuple !== undefined) return new StarTuple(written.tuple.map((item) => readState(item, seen)));
  if (written.range !== undefined) {
    const [start, step, length] = written.range as readonly number[];
    return new StarRange(start, step, length);
  }
  if (written.list !== undefined) {
    const list = new StarList([]);
    seen.push(list);
    for (const item of written.list) list.items.push(readState(item, seen));
    return list;
  }
  const dict = new StarDict();
  seen.push(dict);
  for (const entry of written.dict) {
    const [key, item] = entry as readonly PlainState[];
    dict.set(readState(key, seen), readState(item, seen));
  }
  return dict;
}
