/**
 * A program in a slot: its function bound to the signature of the slot, its inputs filled from features, as
 * far as the program can see them.
 */

import type { Outcome, PlainState, Stateful } from '../../sim/control/index.ts';
import {
  type FeatureKind,
  type InputShape,
  type InputTable,
  PolicyError,
  type PolicyFunction,
  type PolicyInstance,
  type PolicyProgram,
} from '../../sim/sandbox/index.ts';
import {
  type CodePolicy,
  observerFunction,
  type PolicySlot,
  type SlotFunction,
  slotContracts,
} from '../bundle/index.ts';
import { type Feature, type FeatureTable, outcomeFeatures } from '../features/index.ts';

/** A code policy whose program was read. */
export interface LoadedCode {
  readonly code: CodePolicy;
  readonly program: PolicyProgram;
}

/** The shape of one input, as the sandbox wants it. */
function shapeOf({ name, features, isList }: SlotFunction['arguments'][number]): InputShape {
  const fields: Record<string, FeatureKind> = {};
  for (const [field, { kind }] of Object.entries(features)) fields[field] = kind;
  return { name, kind: isList ? 'records' : 'record', fields };
}

interface Wanted<Facts> {
  readonly place: number;
  readonly feature: Feature<Facts>;
}

/** Fills one input of a call. */
export class FeatureWriter<Facts> {
  readonly names: readonly string[];
  readonly #table: InputTable;
  readonly #wanted: readonly Wanted<Facts>[];

  constructor(table: InputTable, features: FeatureTable<Facts>, wants: (name: string) => boolean) {
    this.#table = table;
    this.names = Object.keys(features).filter(wants);
    this.#wanted = this.names.map((name) => ({ place: table.field(name), feature: features[name] }));
  }

  rows(count: number): void {
    this.#table.resize(count);
  }

  write(row: number, facts: Facts): void {
    const table = this.#table;
    const start = row * table.width;
    for (const { place, feature } of this.#wanted) {
      const value = feature.read(facts);
      if (typeof value === 'string') table.texts[start + place] = value;
      else table.values[start + place] = Number(value);
    }
  }
}

/** One function of a program, bound. */
export class SlotCall {
  readonly function: SlotFunction;
  readonly #bound: PolicyFunction;
  readonly #run: (bound: PolicyFunction, requestId: string, nowUs: number) => Float64Array;

  constructor(
    slotFunction: SlotFunction,
    instance: PolicyInstance,
    run: (bound: PolicyFunction, requestId: string, nowUs: number) => Float64Array,
  ) {
    this.function = slotFunction;
    const { name, arguments: inputs, decision } = slotFunction;
    this.#bound = instance.bind({ name, inputs: inputs.map(shapeOf), decision });
    this.#run = run;
  }

  /** The writer of the input at that place of the function. */
  writer<Facts>(place: number, features: FeatureTable<Facts>): FeatureWriter<Facts> {
    const { name: input } = this.function.arguments[place];
    const table = this.#bound.inputs[place];
    return new FeatureWriter(table, features, (name) => this.#bound.reads(input, name));
  }

  /**
   * Decides on what the writers wrote.
   * @throws PolicyError with the request and the simulated time
   */
  decide(requestId: string, nowUs: number): Float64Array {
    return this.#run(this.#bound, requestId, nowUs);
  }
}

export class SlotProgram implements Stateful {
  readonly #slot: PolicySlot;
  readonly #instance: PolicyInstance;
  /** By the name that the slot has for each. */
  readonly #calls: ReadonlyMap<string, SlotCall>;
  readonly #first: SlotCall;
  readonly #observer: { readonly bound: PolicyFunction; readonly writer: FeatureWriter<Outcome> } | null;

  /** @throws PolicyError contract, and what loading the program may throw */
  constructor(slot: PolicySlot, { code, program }: LoadedCode) {
    this.#slot = slot;
    this.#instance = program.instantiate();
    this.#calls = new Map(
      functionsOf(slot, code, this.#instance).map(([name, each]) => [
        name,
        new SlotCall(each, this.#instance, (...call) => this.#call(...call)),
      ]),
    );
    [this.#first] = this.#calls.values();
    this.#observer = this.#bindObserver();
  }

  /** Whether the program wants to be told of outcomes. */
  get observes(): boolean {
    return this.#observer !== null;
  }

  /** Tells the program of an outcome, where it wants that. @throws PolicyError as `decide` does */
  observe(outcome: Outcome): void {
    if (this.#observer === null) return;
    const { bound, writer } = this.#observer;
    writer.write(0, outcome);
    this.#call(bound, outcome.request.id, outcome.nowUs);
  }

  #bindObserver(): { readonly bound: PolicyFunction; readonly writer: FeatureWriter<Outcome> } | null {
    const { name, arguments: inputs } = observerFunction;
    if (!this.#instance.has(name)) return null;
    const [input] = inputs;
    const bound = this.#instance.bind({ name, inputs: [shapeOf(input)], decision: { kind: 'none' } });
    const wants = (field: string): boolean => bound.reads(input.name, field);
    return { bound, writer: new FeatureWriter(bound.inputs[0], outcomeFeatures, wants) };
  }

  /** The program's function of that name of the slot, if it has it. */
  call(name: string): SlotCall | undefined {
    return this.#calls.get(name);
  }

  /** The function that decides, where the slot has one. */
  get function(): SlotFunction {
    return this.#first.function;
  }

  /** As that of the function. */
  writer<Facts>(place: number, features: FeatureTable<Facts>): FeatureWriter<Facts> {
    return this.#first.writer(place, features);
  }

  /** As that of the function. */
  decide(requestId: string, nowUs: number): Float64Array {
    return this.#first.decide(requestId, nowUs);
  }

  #call(bound: PolicyFunction, requestId: string, nowUs: number): Float64Array {
    try {
      return bound.call();
    } catch (error) {
      if (!(error instanceof PolicyError) || error.path !== undefined) throw error;
      throw new PolicyError(error.kind, error.problem, {
        path: this.#slot,
        ...(error.line === undefined ? {} : { line: error.line }),
        ...(requestId === '' ? {} : { requestId }),
        simTimeUs: nowUs,
        cause: error,
      });
    }
  }

  snapshot(): PlainState {
    return this.#instance.snapshot();
  }

  restore(state: PlainState): void {
    this.#instance.restore(state);
  }
}

/**
 * Functions of the slot that the program has, by the slot's name; its own name for one where the policy gives
 * one.
 */
function functionsOf(
  slot: PolicySlot,
  { entrypoint }: CodePolicy,
  instance: PolicyInstance,
): (readonly [name: string, function_: SlotFunction])[] {
  const { functions, takesSeveral } = slotContracts[slot];
  if (entrypoint !== undefined) {
    const named = functions.find(({ name }) => name === entrypoint) ?? functions[0];
    return [[named.name, { ...named, name: entrypoint }]];
  }
  const found = functions.filter(({ name }) => instance.has(name));
  if (found.length > 1 && takesSeveral !== true) {
    const names = found.map(({ name }) => name).join(' and ');
    throw new PolicyError('contract', `the program has ${names}, and only one may decide. Keep one`);
  }
  if (found.length > 0) return found.map((each) => [each.name, each]);
  const calls = functions.map(
    ({ name, arguments: inputs }) => `${name}(${inputs.map((input) => input.name).join(', ')})`,
  );
  throw new PolicyError('contract', `the program has no function ${calls.join(' or ')}. Define it`);
}
