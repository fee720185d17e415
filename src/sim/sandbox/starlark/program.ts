/**
 * A program that was read, resolved and priced, and its instances. An instance has run the module once; its
 * globals are frozen from then on, so that a call depends on its arguments alone.
 */

import { type Budget, Meter } from '../meter.ts';
import { PolicyError } from '../policyError.ts';
import { builtins } from './builtins/index.ts';
import { type CompiledProgram, compileModule } from './run/code/index.ts';
import { Interpreter } from './run/interpreter.ts';
import { Thread } from './run/thread.ts';
import { chargeFunction, type FunctionNode, parse, resolve } from './syntax/index.ts';
import { freeze, StarFunction, typeName, type Value } from './values/index.ts';

/** `compiled` is fast; `interpreted` is the reference for it. Both give the same results and steps. */
export type StarlarkEngine = 'compiled' | 'interpreted';

export class StarlarkProgram {
  readonly #module: FunctionNode;
  readonly #functionCount: number;
  #compiled: CompiledProgram | null = null;

  /** @throws PolicyError compile, with the line and what to write instead */
  constructor(source: string) {
    this.#module = parse(source);
    this.#functionCount = resolve(this.#module, [...builtins.keys()]);
    chargeFunction(this.#module);
  }

  /**
   * Runs the module within the budget of one call.
   *
   * @throws PolicyError step_limit, memory_limit, policy_runtime
   */
  instantiate(budget: Budget = {}, engine: StarlarkEngine = 'compiled'): StarlarkInstance {
    const thread = new Thread(new Meter(budget), this.#functionCount);
    return new StarlarkInstance(thread, this.#globals(thread, engine));
  }

  #globals(thread: Thread, engine: StarlarkEngine): Map<string, Value> {
    let values: readonly (Value | undefined)[];
    if (engine === 'interpreted') {
      values = new Interpreter(thread).module(this.#module);
    } else {
      this.#compiled ??= compileModule(this.#module);
      values = this.#compiled.run(thread);
    }
    const globals = new Map<string, Value>();
    values.forEach((value, slot) => {
      if (value === undefined) return;
      freeze(value);
      globals.set(this.#module.slots[slot], value);
    });
    return globals;
  }
}

export class StarlarkInstance {
  readonly #thread: Thread;
  readonly #globals: ReadonlyMap<string, Value>;

  constructor(thread: Thread, globals: ReadonlyMap<string, Value>) {
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
