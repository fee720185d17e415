/** The fields of a record that the host shows to a policy: their names, kinds and places. */

import { TierKVError } from '../../../../runtime/errors.ts';
import { nearestName } from '../../../../runtime/nearestName.ts';

/** A `float` is stored as a bare number and becomes a float value when it is read. */
export type FieldKind = 'int' | 'float' | 'bool' | 'text' | 'value';

export class RecordShape {
  readonly name: string;
  readonly fields: readonly string[];
  readonly isFloat: readonly boolean[];
  readonly #index: ReadonlyMap<string, number>;

  /** @throws TKV_INPUT for a field that stands there twice */
  constructor(name: string, fields: Readonly<Record<string, FieldKind>>) {
    this.name = name;
    this.fields = Object.keys(fields);
    this.isFloat = this.fields.map((field) => fields[field] === 'float');
    this.#index = new Map(this.fields.map((field, i) => [field, i]));
    if (this.fields.length === 0) throw new TierKVError('TKV_INPUT', `the record ${name} has no fields`);
  }

  /** -1 where there is no such field. */
  indexOf(field: string): number {
    return this.#index.get(field) ?? -1;
  }

  nearest(field: string): string | undefined {
    return nearestName(field, this.fields);
  }
}
