/**
 * JavaScript behind the interface of all languages. A function gets its inputs as objects and frozen arrays
 * of objects; variables of the program keep their values from call to call and belong to the policy's state.
 */

import type { QuickJSHandle } from 'quickjs-emscripten';
import { nearestName } from '../../../runtime/errors.ts';
import type { PlainState } from '../../../sim/control/policy.ts';
import {
  type Budget,
  decidedInput,
  InputTable,
  invalidDecision,
  Meter,
  mentions,
  PolicyError,
  type PolicyFunction,
  type PolicyInstance,
  type PolicyProgram,
  requireIndex,
  requireNumber,
  requireSignature,
  SCALARS,
  type Signature,
} from '../program.ts';
import { bindingCode, type Engine, type Image, newEngine, OWN_CODE, shared } from './engine.ts';

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
    return { image: this.engine.image.save(), functions: this.#functions.map((each) => each.snapshot()) };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const { image, functions } = state as {
      readonly image: Image;
      readonly functions: readonly PlainState[];
    };
    this.enter();
    this.engine.image.load(image);
    functions.forEach((each, i) => {
      this.#functions[i].restore(each);
    });
  }
}

// A function of a JavaScript program that decides. Its inputs are copied into arrays of the engine's memory,
// and the decision is read there; nothing else crosses, but texts when they change.

/** The instance that the function belongs to; `enter` gives it the engine. */
interface EngineOwner {
  readonly engine: Engine;
  enter(): void;
}

/** The name behind a point that is nearly a field's name. */
function mistypedField(source: string, fields: readonly string[]): string {
  for (const [, name] of source.matchAll(/\.([A-Za-z_$][\w$]*)/g)) {
    if (fields.includes(name)) continue;
    const meant = nearestName(name.replaceAll('_', ''), fields);
    const isClose = meant !== undefined && Math.abs(meant.length - name.length) <= 2;
    if (isClose) return `. The field ${name} does not exist: do you mean ${meant}?`;
  }
  return ', and read no field that is not there';
}

class JavaScriptFunction implements PolicyFunction {
  readonly signature: Signature;
  readonly inputs: readonly InputTable[];
  readonly #owner: EngineOwner;
  readonly #source: string;
  readonly #call: QuickJSHandle;
  readonly #setText: QuickJSHandle;
  readonly #shared: SharedNumbers;
  readonly #about: InputTable | undefined;
  readonly #textFields: readonly { readonly input: number; readonly field: number }[];
  readonly #rows: Float64Array;
  #decision: Float64Array = new Float64Array(SCALARS);
  /** Texts that the engine has, by input and place. */
  #sent: string[][];

  /** The engine is the owner's already. */
  constructor(signature: Signature, owner: EngineOwner, source: string) {
    this.signature = signature;
    this.#owner = owner;
    this.#source = source;
    const { engine } = owner;
    const [call, resize, mark, setText] = engine.elements(
      engine.run(bindingCode(signature, source), OWN_CODE, 'binding'),
      4,
    );
    this.#call = call;
    this.#setText = setText;
    this.#shared = new SharedNumbers(engine, resize, mark);
    this.inputs = signature.inputs.map(
      (shape) => new InputTable(shape, (length) => new Float64Array(length)),
    );
    this.#rows = new Float64Array(Math.max(1, this.inputs.length));
    this.#sent = signature.inputs.map(() => []);
    this.#about = this.inputs[decidedInput(signature)];
    this.#textFields = signature.inputs.flatMap(({ fields }, input) => {
      return Object.entries(fields).flatMap(([name, kind], field) => {
        return kind === 'text' && mentions(source, name) ? [{ input, field }] : [];
      });
    });
    this.#makeRoom();
  }

  reads(_: string, field: string): boolean {
    return mentions(this.#source, field);
  }

  call(): Float64Array {
    this.#owner.enter();
    this.#makeRoom();
    for (const { input, field } of this.#textFields) this.#sendTexts(input, field);
    for (let i = 0; i < this.inputs.length; i++) {
      const { rows, width, values } = this.inputs[i];
      this.#rows[i] = rows;
      this.#shared.write(shared.firstInput + i, values, rows * width);
    }
    this.#shared.write(shared.rows, this.#rows, this.#rows.length);
    const { engine } = this.#owner;
    const problem = engine.textOf(engine.call(this.#call));
    if (problem !== null) return invalidDecision(this.signature.name, problem);
    return this.#read();
  }

  #read(): Float64Array {
    const { name, decision } = this.signature;
    const rows = this.#about?.rows ?? 0;
    const count = Math.max(SCALARS, rows);
    if (count > this.#decision.length) this.#decision = new Float64Array(2 * count);
    const into = this.#decision;
    this.#shared.read(shared.results, into, count);
    if (decision.kind === 'index') requireIndex(name, into[0], rows);
    else if (decision.kind === 'numbers') for (let i = 0; i < rows; i++) this.#requireNumber(into[i]);
    else if (decision.kind === 'number') this.#requireNumber(into[0]);
    else if (decision.kind === 'choice') this.#requireNumber(into[1]);
    return into;
  }

  /** A field that is not there reads as undefined, and what is computed with it as NaN. */
  #requireNumber(value: number): void {
    if (!Number.isNaN(value)) return;
    const fields = this.signature.inputs.flatMap((input) => Object.keys(input.fields));
    requireNumber(this.signature.name, value, mistypedField(this.#source, fields));
  }

  snapshot(): PlainState {
    return { places: this.#shared.snapshot(), sent: this.#sent.map((texts) => [...texts]) };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const { places, sent } = state as {
      readonly places: PlainState;
      readonly sent: readonly (readonly string[])[];
    };
    this.#shared.restore(places);
    this.#sent = sent.map((texts) => [...texts]);
  }

  /** Room in the engine for all that the next call has. */
  #makeRoom(): void {
    this.#shared.reserve(shared.rows, this.#rows.length);
    this.#shared.reserve(shared.results, Math.max(SCALARS, this.#about?.rows ?? 0));
    for (let i = 0; i < this.inputs.length; i++) {
      const { rows, width } = this.inputs[i];
      this.#shared.reserve(shared.firstInput + i, Math.max(1, rows) * width);
    }
  }

  #sendTexts(input: number, field: number): void {
    const { rows, width, texts } = this.inputs[input];
    const sent = this.#sent[input];
    const { engine } = this.#owner;
    for (let row = 0; row < rows; row++) {
      const place = row * width + field;
      const text = texts[place] ?? '';
      if ((sent[place] ?? '') === text) continue;
      engine.tell(this.#setText, shared.firstInput + input, place, text);
      sent[place] = text;
    }
  }
}

// Arrays of numbers of a program that the host writes and reads where they lie in the engine's memory.

/** Numbers by which an array is found; its second is set to twice the first. */
const MARKS = [-1.2345678901234567e-301, -9.876543210987654e-302] as const;

class SharedNumbers {
  readonly #engine: Engine;
  readonly #resize: QuickJSHandle;
  readonly #mark: QuickJSHandle;
  /** In numbers: where each array begins, and how long it is. */
  #starts: number[] = [];
  #lengths: number[] = [];
  #words: Float64Array;

  /** @param resize makes an array of a length; @param mark sets its first numbers */
  constructor(engine: Engine, resize: QuickJSHandle, mark: QuickJSHandle) {
    this.#engine = engine;
    this.#resize = resize;
    this.#mark = mark;
    this.#words = new Float64Array(engine.memory.buffer);
  }

  /** Makes an array longer, if it has to be. */
  reserve(which: number, length: number): void {
    const before = this.#lengths[which] ?? 0;
    if (length <= before) return;
    this.#lengths[which] = Math.max(length, 2 * before, 2);
    this.#engine.tell(this.#resize, which, this.#lengths[which]);
    this.#starts[which] = this.#find(which);
  }

  /**
   * Finds an array by setting it to one mark, then to another: only its place holds both, one after the other.
   * An earlier place with one mark is the engine's own stack.
   */
  #find(which: number): number {
    this.#engine.tell(this.#mark, which, MARKS[0]);
    const before = this.#memory();
    const places: number[] = [];
    for (let i = before.indexOf(MARKS[0]); i >= 0; i = before.indexOf(MARKS[0], i + 1)) places.push(i);
    this.#engine.tell(this.#mark, which, MARKS[1]);
    const after = this.#memory();
    const place = places.findLast((each) => after[each] === MARKS[1] && after[each + 1] === 2 * MARKS[1]);
    if (place !== undefined) return place;
    const problem = 'the program changes how arrays of numbers work, through which it is given its inputs';
    throw new PolicyError('policy_runtime', `${problem}. Leave the built-in objects as they are`);
  }

  write(which: number, values: Float64Array, count: number): void {
    const words = this.#memory();
    const start = this.#starts[which];
    for (let i = 0; i < count; i++) words[start + i] = values[i];
  }

  read(which: number, into: Float64Array, count: number): void {
    const words = this.#memory();
    const start = this.#starts[which];
    for (let i = 0; i < count; i++) into[i] = words[start + i];
  }

  snapshot(): PlainState {
    return [[...this.#starts], [...this.#lengths]];
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const [starts, lengths] = state as readonly (readonly number[])[];
    this.#starts = [...starts];
    this.#lengths = [...lengths];
  }

  #memory(): Float64Array {
    // memory that has grown leaves an empty buffer behind
    if (this.#words.length === 0) this.#words = new Float64Array(this.#engine.memory.buffer);
    return this.#words;
  }
}
