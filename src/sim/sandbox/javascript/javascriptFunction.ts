/**
 * A function of a JavaScript program that decides. Its inputs are copied into arrays of the engine's memory,
 * and the decision is read there; nothing else crosses, but texts when they change.
 */

import type { QuickJSHandle } from 'quickjs-emscripten';
import { nearestName } from '../../../runtime/nearestName.ts';
import type { PlainState } from '../../control/policy.ts';
import {
  decidedInput,
  InputTable,
  invalidDecision,
  mentions,
  requireIndex,
  requireNumber,
  SCALARS,
  type Signature,
} from '../calls/index.ts';
import type { PolicyFunction } from '../program.ts';
import type { Engine } from './engine.ts';
import { bindingCode, OWN_CODE, shared } from './guestCode.ts';
import { SharedNumbers } from './sharedNumbers.ts';

/** The instance that the function belongs to; `enter` gives it the engine. */
export interface EngineOwner {
  readonly engine: Engine;
  enter(): void;
}

/** What the program reads behind a point that is nearly a field. */
function mistypedField(source: string, fields: readonly string[]): string {
  for (const [, name] of source.matchAll(/\.([A-Za-z_$][\w$]*)/g)) {
    if (fields.includes(name)) continue;
    const meant = nearestName(name.replaceAll('_', ''), fields);
    const isClose = meant !== undefined && Math.abs(meant.length - name.length) <= 2;
    if (isClose) return `. There is no field ${name}: do you mean ${meant}?`;
  }
  return ', and read no field that is not there';
}

export class JavaScriptFunction implements PolicyFunction {
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
