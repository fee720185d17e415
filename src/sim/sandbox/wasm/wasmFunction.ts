/**
 * A function of a module that decides. It gets the address of each input's numbers, the number of records
 * behind that of a list, and behind these the address of its results where the decision has more than one
 * number; a single number is what it returns. Texts come as hashes.
 */

import {
  decidedInput,
  InputTable,
  invalidDecision,
  requireChoicePlace,
  requireIndex,
  requireNumber,
  SCALARS,
  type Signature,
} from '../calls/index.ts';
import type { PolicyFunction } from '../program.ts';
import type { Layout } from './layout.ts';
import type { Machine, WasmCall } from './machine.ts';
import type { Place, Places } from './places.ts';
import { textHash } from './textHash.ts';

/** Types of the parameters and of the result that a signature asks for. */
export function wasmType({ inputs, decision }: Signature): { params: number; returnsNumber: boolean } {
  const params = inputs.reduce((sum, { kind }) => sum + (kind === 'records' ? 2 : 1), 0);
  return {
    params: params + (hasResults(decision) ? 1 : 0),
    returnsNumber: decision.kind !== 'none' && decision.kind !== 'numbers',
  };
}

function hasResults(decision: Signature['decision']): boolean {
  return decision.kind === 'numbers' || (decision.kind === 'choice' && decision.withAmount.length > 0);
}

interface TextField {
  readonly table: InputTable;
  readonly field: number;
  readonly texts: string[];
  readonly hashes: number[];
}

/** What a function runs on. */
export interface WasmSurroundings {
  readonly machine: Machine;
  readonly callee: WasmCall;
  readonly places: Places;
  readonly layout: Layout;
}

export class WasmFunction implements PolicyFunction {
  readonly signature: Signature;
  readonly inputs: readonly InputTable[];
  readonly #places: Places;
  readonly #layout: Layout;
  readonly #inputPlaces: Place[] = [];
  readonly #results: Place | null;
  readonly #about: InputTable | undefined;
  readonly #texts: readonly TextField[];
  readonly #arguments: number[] = [];
  #machine: Machine;
  #callee: WasmCall;
  #decision: Float64Array = new Float64Array(SCALARS);

  /** @throws PolicyError contract, and what `alloc` ends in */
  constructor(signature: Signature, { machine, callee, places, layout }: WasmSurroundings) {
    this.signature = signature;
    this.#places = places;
    this.#layout = layout;
    this.#machine = machine;
    this.#callee = callee;
    this.inputs = signature.inputs.map((shape) => {
      const place = places.add();
      const table = new InputTable(shape, (numbers) => places.reserve(place, numbers));
      place.table = table;
      this.#inputPlaces.push(place);
      return table;
    });
    this.#results = hasResults(signature.decision) ? places.add() : null;
    this.#about = this.inputs[decidedInput(signature)];
    this.#texts = this.inputs.flatMap((table) => {
      const { name, fields } = table.shape;
      return Object.entries(fields).flatMap(([text, kind], field) => {
        return kind === 'text' && this.reads(name, text) ? [{ table, field, texts: [], hashes: [] }] : [];
      });
    });
  }

  reads(input: string, field: string): boolean {
    return this.#layout.reads(this.signature.inputs, input, field);
  }

  /** Goes on with another machine of the same module. */
  runOn(machine: Machine, callee: WasmCall): void {
    this.#machine = machine;
    this.#callee = callee;
  }

  call(): Float64Array {
    for (const text of this.#texts) writeHashes(text);
    const values = this.#arguments;
    let count = 0;
    for (let i = 0; i < this.inputs.length; i++) {
      values[count++] = this.#inputPlaces[i].address;
      if (this.inputs[i].shape.kind === 'records') values[count++] = this.inputs[i].rows;
    }
    if (this.#results !== null) {
      const needed = Math.max(this.#about?.rows ?? 0, SCALARS);
      if (needed > this.#results.numbers) this.#places.reserve(this.#results, 2 * needed);
      values[count] = this.#results.address;
      // what an earlier call left there is no part of this decision; a number that is left out shows
      this.#places.view(this.#results).fill(this.signature.decision.kind === 'numbers' ? NaN : 0);
    }
    let returned: number;
    try {
      returned = this.#machine.run(this.#callee, values);
    } finally {
      this.#places.follow();
    }
    return this.#read(returned);
  }

  #read(returned: number): Float64Array {
    const { name, decision } = this.signature;
    const rows = this.#about?.rows ?? 0;
    const into = this.#decision;
    switch (decision.kind) {
      case 'none':
        return into;
      case 'number':
        into[0] = requireNumber(name, returned);
        return into;
      case 'index':
        into[0] = requireIndex(name, returned, rows);
        return into;
      case 'choice': {
        const place = requireChoicePlace(name, returned, decision);
        const hasAmount = this.#results !== null && decision.withAmount.includes(decision.names[place]);
        into[0] = place;
        into[1] = hasAmount ? requireNumber(name, this.#places.view(this.#results)[0]) : 0;
        return into;
      }
      case 'numbers':
        return this.#readNumbers(rows);
    }
  }

  #readNumbers(rows: number): Float64Array {
    if (this.#decision.length < rows) this.#decision = new Float64Array(2 * rows);
    if (this.#results === null) return this.#decision;
    const results = this.#places.view(this.#results);
    for (let row = 0; row < rows; row++) {
      this.#decision[row] = Number.isNaN(results[row])
        ? invalidDecision(
            this.signature.name,
            `gives record ${row} of ${rows} NaN or nothing. ` +
              'Store a number for each, and guard divisions by 0',
          )
        : results[row];
    }
    return this.#decision;
  }
}

function writeHashes({ table, field, texts, hashes }: TextField): void {
  for (let row = 0; row < table.rows; row++) {
    const place = row * table.width + field;
    const text = table.texts[place] ?? '';
    if (texts[row] !== text) {
      texts[row] = text;
      hashes[row] = textHash(text);
    }
    table.values[place] = hashes[row];
  }
}
