/** Arrays of numbers of a program that the host writes and reads where they lie in the engine's memory. */

import type { QuickJSHandle } from 'quickjs-emscripten';
import type { PlainState } from '../../control/policy.ts';
import { PolicyError } from '../policyError.ts';
import type { Engine } from './engine.ts';

/** Numbers by which an array is found; its second is set to twice the first. */
const MARKS = [-1.2345678901234567e-301, -9.876543210987654e-302] as const;

export class SharedNumbers {
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
   * An array is found by what it is set to: the only place that holds both marks one after the other. What is
   * found before it is the engine's own stack, through which a mark went.
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
