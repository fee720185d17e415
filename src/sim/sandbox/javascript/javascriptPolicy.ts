/**
 * JavaScript behind the interface of all languages. A function gets its inputs as objects and frozen arrays
 * of objects; variables of the program keep their values from call to call and belong to the policy's state.
 */

import type { PlainState } from '../../control/policy.ts';
import { requireSignature, type Signature } from '../calls/index.ts';
import { type Budget, Meter } from '../meter.ts';
import { PolicyError } from '../policyError.ts';
import type { PolicyFunction, PolicyInstance, PolicyProgram } from '../program.ts';
import { type Engine, newEngine } from './engine.ts';
import { OWN_CODE } from './guestCode.ts';
import type { Image } from './image.ts';
import { JavaScriptFunction } from './javascriptFunction.ts';

export class JavaScriptPolicy implements PolicyProgram {
  readonly language = 'javascript';
  readonly #engine: Engine;
  readonly #source: string;
  /** Turns of the engine that reading the source takes. */
  readonly #reading: number;

  /**
   * Programs that share an engine take turns in it, which copies its memory at each turn.
   *
   * @throws PolicyError compile, with the line
   */
  constructor(engine: Engine, source: string) {
    this.#engine = engine;
    this.#source = source;
    this.#reading = engine.check(source);
  }

  /**
   * A program with an engine of its own.
   *
   * @throws PolicyError compile, with the line
   * @throws TKV_CONFIG where quickjs-emscripten is not installed
   */
  static async load(source: string): Promise<JavaScriptPolicy> {
    return new JavaScriptPolicy(await newEngine(), source);
  }

  instantiate(budget: Budget = {}): PolicyInstance {
    return new JavaScriptPolicyInstance(this.#engine, this.#source, this.#reading, budget);
  }
}

const identifier = /^[A-Za-z_$][\w$]*$/;

class JavaScriptPolicyInstance implements PolicyInstance {
  readonly engine: Engine;
  readonly #source: string;
  readonly #limits: Meter;
  readonly #functions: JavaScriptFunction[] = [];

  constructor(engine: Engine, source: string, reading: number, budget: Budget) {
    this.engine = engine;
    this.#source = source;
    this.#limits = new Meter(budget);
    this.enter();
    engine.run(source, reading).dispose();
  }

  enter(): void {
    this.engine.enter(this, this.#limits);
  }

  get stepsUsed(): number {
    return this.engine.stepsUsed;
  }

  get memoryUsed(): number {
    this.enter();
    return this.engine.memoryUsed;
  }

  has(name: string): boolean {
    if (!identifier.test(name)) return false;
    this.enter();
    return this.engine.isTrue(this.engine.run(`typeof ${name} === 'function'`, OWN_CODE));
  }

  bind(signature: Signature): PolicyFunction {
    requireSignature(signature);
    const { name, inputs } = signature;
    if (!this.has(name)) {
      const call = `function ${name}(${inputs.map((input) => input.name).join(', ')})`;
      throw new PolicyError('contract', `the function ${name} is missing. Define it: ${call} { ... }`);
    }
    const bound = new JavaScriptFunction(signature, this, this.#source);
    this.#functions.push(bound);
    return bound;
  }

  snapshot(): PlainState {
    this.enter();
    return { image: this.engine.save(), functions: this.#functions.map((each) => each.snapshot()) };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const { image, functions } = state as {
      readonly image: Image;
      readonly functions: readonly PlainState[];
    };
    this.enter();
    this.engine.load(image);
    functions.forEach((each, i) => {
      this.#functions[i].restore(each);
    });
  }
}
