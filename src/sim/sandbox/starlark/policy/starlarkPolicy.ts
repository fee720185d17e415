/**
 * Starlark behind the interface of all languages. A function gets its inputs as records, and the policy's
 * state as one more parameter where it has one.
 */

import type { PlainState } from '../../../control/policy.ts';
import { type InputTable, mentions, requireSignature, type Signature } from '../../calls/index.ts';
import type { Budget } from '../../meter.ts';
import { PolicyError } from '../../policyError.ts';
import type { PolicyFunction, PolicyInstance, PolicyProgram } from '../../program.ts';
import { type StarlarkEngine, type StarlarkInstance, StarlarkProgram } from '../program.ts';
import { StarDict, StarFunction, type Value } from '../values/index.ts';
import { DecisionReader } from './decision.ts';
import { RecordInput } from './records.ts';
import { measureState, readState, releaseState, writeState } from './state.ts';

export class StarlarkPolicy implements PolicyProgram {
  readonly language = 'starlark';
  readonly #program: StarlarkProgram;
  readonly #engine: StarlarkEngine;
  readonly #source: string;

  /** @throws PolicyError compile */
  constructor(source: string, engine: StarlarkEngine = 'compiled') {
    this.#program = new StarlarkProgram(source);
    this.#source = source;
    this.#engine = engine;
  }

  instantiate(budget: Budget = {}): PolicyInstance {
    return new StarlarkPolicyInstance(this.#program.instantiate(budget, this.#engine), this.#source);
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
