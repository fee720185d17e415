/**
 * How an object that changes is written down and brought back. It shows everything in it that changes to a
 * visitor, in one order. A visitor that saves copies what it is shown; one that restores puts back what was
 * copied of an object that was made alike. One method does both, so they cannot name different fields.
 *
 *     object --visitState(saves)--> plain data --visitState(restores)--> another object, made alike
 *
 * What is only room to work in, and empty between two calls, is not shown.
 */

export type TypedArray =
  | Float64Array
  | Int32Array
  | Uint32Array
  | Int16Array
  | Uint16Array
  | Int8Array
  | Uint8Array;

export interface StateVisitor {
  /** Whether saved state is put back. */
  readonly restores: boolean;
  /**
   * The object's own public fields that are numbers, flags or typed arrays. An array that has grown replaces
   * the one that is there.
   */
  fields(owner: object): void;
  /** A number of the configuration. State that was saved with another one is refused. */
  constant(value: number): void;
  /** An array whose length never changes. */
  array(array: TypedArray): void;
  /** An array that is replaced when it grows. @returns the one to go on with */
  growing<T extends TypedArray>(array: T): T;
  /** @returns the number to go on with */
  number(value: number): number;
  /** @returns the flag to go on with */
  flag(value: boolean): boolean;
  /** A list of numbers, filled in place. */
  list(list: number[]): void;
  /**
   * Anything else, as plain data. What is saved and what is restored may be shared between snapshots, so
   * neither side changes it afterwards.
   */
  value<T>(save: () => T, restore: (saved: T) => void): void;
}

export interface Stateful {
  visitState(visitor: StateVisitor): void;
}
