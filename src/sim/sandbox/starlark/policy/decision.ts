/** A decision out of what a Starlark function returned. */

import {
  decidedInput,
  type InputTable,
  invalidDecision,
  quoted,
  requireChoice,
  requireIndex,
  requireNumber,
  SCALARS,
  type Signature,
} from '../../calls/index.ts';
import { StarFloat, StarList, StarRecord, StarTuple, typeName, type Value } from '../values/index.ts';

type Choice = Extract<Signature['decision'], { kind: 'choice' }>;

export class DecisionReader {
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

  #choice(value: Value, decision: Choice): void {
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
