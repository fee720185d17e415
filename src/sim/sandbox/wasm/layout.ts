/**
 * Where the fields of a row lie, told to a module that asks. For each field that it reads, a module exports a
 * mutable global of type i32 named `<input>_<field>`, and `<input>_row` for what a row takes; each is set to
 * a number of bytes. Then it keeps working when fields are added, and the host fills only what it reads. A
 * module that exports no such global gets all fields, in the order of the signature, 8 bytes each.
 */

import { configError } from '../../../runtime/errors.ts';
import type { InputShape } from '../calls/index.ts';
import { exportKinds, I32, type ModuleParts } from './binary/index.ts';
import type { Machine } from './machine.ts';

const FIELD_BYTES = 8;

export class Layout {
  /** Numbers of the globals by the name of their export. */
  readonly #globals: ReadonlyMap<string, number>;
  /** Fields of each input that was told, to find two inputs of one name. */
  readonly #told: Map<string, string> = new Map();

  constructor({ exports, globals }: ModuleParts) {
    const told = exports.filter(({ kind, index }) => {
      return kind === exportKinds.global && globals[index].isMutable && globals[index].type === I32;
    });
    this.#globals = new Map(told.map(({ name, index }) => [name, index]));
  }

  /** Whether a module can see a field of an input of the signature. */
  reads(inputs: readonly InputShape[], input: string, field: string): boolean {
    return !inputs.some((each) => this.#isTold(each)) || this.#globals.has(`${input}_${field}`);
  }

  /** Sets the globals that the module has for these inputs. */
  tell(inputs: readonly InputShape[], machine: Machine): void {
    for (const { name, fields } of inputs) {
      const names = Object.keys(fields);
      const told = this.#told.get(name) ?? String(names);
      if (told !== String(names)) throw configError(`input ${name}`, 'has two shapes', 'Rename one.');
      this.#told.set(name, told);
      names.forEach((field, i) => {
        machine.setGlobal(this.#globals.get(`${name}_${field}`), FIELD_BYTES * i);
      });
      machine.setGlobal(this.#globals.get(`${name}_row`), FIELD_BYTES * names.length);
    }
  }

  #isTold({ name, fields }: InputShape): boolean {
    return Object.keys(fields).some((field) => this.#globals.has(`${name}_${field}`));
  }
}
