/** The inputs of a call as Starlark sees them: a record, or a tuple of records. */

import { type InputShape, InputTable } from '../../calls/index.ts';
import { RecordShape, StarRecord, StarTuple, type Value } from '../values/index.ts';

/** Records are made once and filled before each call; a program cannot keep one. */
export class RecordInput {
  readonly table: InputTable;
  readonly #shape: RecordShape;
  readonly #kinds: readonly string[];
  readonly #records: StarRecord[] = [];
  /** By number of rows. */
  readonly #tuples: StarTuple[] = [];

  constructor(shape: InputShape) {
    this.table = new InputTable(shape, (numbers) => new Float64Array(numbers));
    this.#shape = new RecordShape(shape.name, shape.fields);
    this.#kinds = Object.values(shape.fields);
  }

  /** What the table holds now. */
  value(): Value {
    const { rows, shape } = this.table;
    for (let row = 0; row < rows; row++) this.#fill(row);
    if (shape.kind === 'record') return this.#records[0];
    this.#tuples[rows] ??= new StarTuple(this.#records.slice(0, rows));
    return this.#tuples[rows];
  }

  #fill(row: number): void {
    const { values, texts, width } = this.table;
    this.#records[row] ??= new StarRecord(this.#shape, new Array<Value>(width).fill(0));
    const into = this.#records[row].values;
    const start = row * width;
    for (let field = 0; field < width; field++) {
      const kind = this.#kinds[field];
      if (kind === 'text') into[field] = texts[start + field] ?? '';
      else into[field] = kind === 'bool' ? values[start + field] !== 0 : values[start + field];
    }
  }
}
