/**
 * A policy's program, whatever its language: it is read once, and each instance of it decides by calls within
 * a budget. What an instance remembers from call to call is plain data that can be taken out and put back, so
 * that a simulation can be forked and repeated.
 */

import { configError, type ErrorFacts, requireInteger, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { SnapshotState } from '../../sim/control/policy.ts';

export const policyLanguages = ['starlark', 'wasm', 'javascript'] as const;

/** A language in which a policy can be written. */
export type PolicyLanguage = (typeof policyLanguages)[number];

/** A policy program that was checked and can be run in instances of its own. */
export interface PolicyProgram {
  readonly language: PolicyLanguage;
  /**
   * A new instance with the memory of a program that was never called. What the program does when it is
   * loaded happens within the budget of one call.
   *
   * @throws PolicyError contract, step_limit, memory_limit, policy_runtime
   */
  instantiate(budget?: Budget): PolicyInstance;
}

export interface PolicyInstance extends SnapshotState {
  /** Whether the program has a function of that name. */
  has(name: string): boolean;
  /**
   * The function of that signature, ready to be called.
   *
   * @throws PolicyError contract where the program lacks it or has it otherwise; memory_limit
   */
  bind(signature: Signature): PolicyFunction;
  /** Steps of the last call, as the language counts them. */
  readonly stepsUsed: number;
  /** Units: what the last call allocated in Starlark, all that the instance has in the other languages. */
  readonly memoryUsed: number;
}

export interface PolicyFunction {
  readonly signature: Signature;
  /** A table for each input of the signature. The host fills them before each call. */
  readonly inputs: readonly InputTable[];
  /** Whether the program can see that field of an input. What it cannot see need not be filled in. */
  reads(input: string, field: string): boolean;
  /**
   * Decides on what the tables hold, within a new budget. After an error the instance can be called again.
   *
   * @returns `number`, `index`: it stands first. `choice`: the place of its name, then its amount or 0.
   *   `numbers`: one for each record. The array holds until the next call.
   * @throws PolicyError step_limit, memory_limit, policy_runtime, invalid_decision
   */
  call(): Float64Array;
}

// The budget of one call of a policy, in steps and in units of memory. Both are counted, never timed, so that
// they are the same on every machine. What is used up once stays used until `refill`.

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

  /** @throws TKV_CONFIG unless both limits are positive integers */
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

// Errors of a policy, by kind. A kind tells a search framework what is at fault: the text of the
// policy, its behaviour in one call, or the machine that ran it.

/**
 * - `compile`: the text does not parse in its language.
 * - `contract`: the program lacks what its slot asks for.
 * - `step_limit`, `memory_limit`: one call used up its budget.
 * - `policy_runtime`: a call failed, for example by a division by zero.
 * - `invalid_decision`: a call returned what its slot does not accept.
 * - `frozen_region_edited`: text outside the region that a search may edit has changed.
 * - `infrastructure_timeout`: the machine was too slow. It says nothing about the policy.
 */
const policyErrorKinds = [
  'compile',
  'contract',
  'step_limit',
  'memory_limit',
  'policy_runtime',
  'invalid_decision',
  'frozen_region_edited',
  'infrastructure_timeout',
] as const;

type PolicyErrorKind = (typeof policyErrorKinds)[number];

export interface PolicyErrorFacts extends ErrorFacts {
  /** Request whose decision was asked for. */
  requestId?: string;
  /** Simulated time of the call, in microseconds. */
  simTimeUs?: number;
}

/** The error of a policy program: what rule it broke, and where. */
export class PolicyError extends TierKVError {
  readonly kind: PolicyErrorKind;
  readonly requestId: string | undefined;
  readonly simTimeUs: number | undefined;
  /** The problem, without its place. */
  readonly problem: string;

  constructor(kind: PolicyErrorKind, problem: string, facts: PolicyErrorFacts = {}) {
    super('TKV_INPUT', `${kind}: ${place(facts)}${problem}`, facts);
    this.kind = kind;
    this.problem = problem;
    this.requestId = facts.requestId;
    this.simTimeUs = facts.simTimeUs;
  }

  /** Errors of policies only, also of another copy of this package. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    if (!(value instanceof TierKVError)) return false;
    const kinds: readonly string[] = policyErrorKinds;
    return kinds.includes(String((value as Partial<PolicyError>).kind));
  }
}

function place({ path, line, requestId, simTimeUs }: PolicyErrorFacts): string {
  const parts = [
    ...(path === undefined ? [] : [path]),
    ...(line === undefined ? [] : [`line ${line}`]),
    ...(requestId === undefined ? [] : [`request ${requestId}`]),
    ...(simTimeUs === undefined ? [] : [`at ${simTimeUs} µs`]),
  ];
  return parts.length === 0 ? '' : `${parts.join(', ')}: `;
}

// Checks decisions, in the same way for every language. A decision is an array of numbers.

/** @throws PolicyError invalid_decision, always */
export function invalidDecision(name: string, problem: string): never {
  throw new PolicyError('invalid_decision', `${name} ${problem}`);
}

/** @param remedy what may be the reason, beside a division by 0 */
export function requireNumber(name: string, value: number, remedy = ''): number {
  return Number.isNaN(value) ? invalidDecision(name, `returns NaN. Guard divisions by 0${remedy}`) : value;
}

/** @param rows records of the input that the decision is about */
export function requireIndex(name: string, value: number, rows: number): number {
  if (Number.isInteger(value) && value >= 0 && value < rows) return value;
  const range = rows === 0 ? 'there is nothing to choose from' : `return an integer from 0 to ${rows - 1}`;
  return invalidDecision(name, `returns the index ${value}; ${range}`);
}

type ChoiceShape = Extract<DecisionShape, { kind: 'choice' }>;

/** @returns the place of the name */
export function requireChoice(name: string, choice: string, { names }: ChoiceShape): number {
  const place = names.indexOf(choice);
  if (place >= 0) return place;
  return invalidDecision(name, `returns "${choice.slice(0, 40)}". Return one of ${quoted(names)}`);
}

export function requireChoicePlace(name: string, place: number, { names }: ChoiceShape): number {
  if (Number.isInteger(place) && place >= 0 && place < names.length) return place;
  const meanings = names.map((each, i) => `${i} for ${each}`).join(', ');
  return invalidDecision(name, `returns ${place}. Return ${meanings}`);
}

export function quoted(names: readonly string[]): string {
  return names.map((each) => `"${each}"`).join(', ');
}

/** Numbers that a decision takes at most, without those of `numbers`, which has one a record. */
export const SCALARS = 2;

// The numbers of one input of a call, row after row, where the host writes them. In WASM and JavaScript the
// table lies in the program's own memory, so that nothing is copied.

export class InputTable {
  readonly shape: InputShape;
  /** Numbers of a row: the fields. */
  readonly width: number;
  /** Rows of the next call. A record has one. */
  rows: number;
  /**
   * `values[row * width + field]`. Write to it after `resize` and before the call, and read the property anew
   * each time: the table moves when the program's memory grows.
   */
  values: Float64Array;
  /** Texts, at the places that their fields have in `values`. */
  readonly texts: string[] = [];
  readonly #reserve: (numbers: number) => Float64Array;
  readonly #fields: readonly string[];

  /** @param reserve gives room for `numbers` numbers; called again when a table has to grow */
  constructor(shape: InputShape, reserve: (numbers: number) => Float64Array) {
    this.shape = shape;
    this.#fields = Object.keys(shape.fields);
    this.width = this.#fields.length;
    this.#reserve = reserve;
    this.rows = shape.kind === 'record' ? 1 : 0;
    this.values = reserve(shape.kind === 'record' ? this.width : 8 * this.width);
  }

  /**
   * Sets the number of rows. What the table held is undefined afterwards.
   *
   * @throws PolicyError memory_limit where the program has no room for them
   */
  resize(rows: number): void {
    const needed = rows * this.width;
    if (needed > this.values.length) this.values = this.#reserve(Math.max(needed, 2 * this.values.length));
    this.rows = rows;
  }

  /** Place of a field in a row. @throws TKV_CONFIG for a name that the shape does not have */
  field(name: string): number {
    const place = this.#fields.indexOf(name);
    if (place < 0)
      throw configError(
        `${this.shape.name}.${name}`,
        'is not a field of the shape',
        'Take one of its fields.',
      );
    return place;
  }
}

// Signatures of the functions that a host calls in a policy: the name of the function, the inputs it gets, and the decision it makes. The
// same signature serves every language; each language says how a function of that signature looks in it.

/** `int` and `float` are numbers, `bool` is 0 or 1 in the table and a truth value in the program. */
export type InputKind = 'int' | 'float' | 'bool' | 'text';

export interface InputShape {
  readonly name: string;
  /** One record, or a list of any number of records. */
  readonly kind: 'record' | 'records';
  /** Fields in the order in which they stand in a row. */
  readonly fields: Readonly<Record<string, InputKind>>;
}

/**
 * - `none`: the function only observes.
 * - `number`: a number that is not NaN.
 * - `index`: the place of a record in the input `of`, from 0.
 * - `numbers`: a number that is not NaN for each record of the input `of`.
 * - `choice`: one of `names`; those in `withAmount` come with a number that is not NaN.
 */
type DecisionShape =
  | { readonly kind: 'none' }
  | { readonly kind: 'number' }
  | { readonly kind: 'index'; readonly of: string }
  | { readonly kind: 'numbers'; readonly of: string }
  | { readonly kind: 'choice'; readonly names: readonly string[]; readonly withAmount: readonly string[] };

export interface Signature {
  /** Name of the function in the program. */
  readonly name: string;
  readonly inputs: readonly InputShape[];
  readonly decision: DecisionShape;
}

/** The place of the input that the decision is about, -1 where it is about none. */
export function decidedInput({ inputs, decision }: Signature): number {
  if (decision.kind !== 'index' && decision.kind !== 'numbers') return -1;
  return inputs.findIndex(({ name, kind }) => name === decision.of && kind === 'records');
}

/** Whether a text can mean a field by its name; where it may ask for fields by other texts, it always can. */
export function mentions(source: string, field: string): boolean {
  return new RegExp(`\\b${field}\\b`).test(source) || /\bgetattr\b/.test(source);
}

/** @throws TKV_CONFIG for a signature that no program could have */
export function requireSignature(signature: Signature): void {
  checkInputs({ signature }, { signature: is.fields({ name: is.text() }) });
  const { name, inputs, decision } = signature;
  for (const input of inputs) {
    if (Object.keys(input.fields).length > 0) continue;
    throw configError(`${name}.${input.name}`, 'has no fields', 'Name at least one field.');
  }
  const isAbout = decision.kind === 'index' || decision.kind === 'numbers';
  if (isAbout && decidedInput(signature) < 0) {
    throw configError(`${name}.decision`, `is about ${decision.of}, no list of records`, 'Name an input.');
  }
}
