/** Variables of one activation of a function, for the tree interpreter. */

import { builtins } from '../builtins/index.ts';
import { fail } from '../failure.ts';
import type { Binding, NameExpression } from '../syntax/index.ts';
import type { Value } from '../values/index.ts';

export class Frame {
  readonly values: (Value | undefined)[];
  readonly outer: Frame | null;
  readonly module: Frame;

  constructor(slotCount: number, outer: Frame | null) {
    this.values = new Array<Value | undefined>(slotCount).fill(undefined);
    this.outer = outer;
    this.module = outer === null ? this : outer.module;
  }

  at(depth: number): Frame {
    let frame: Frame = this;
    for (let i = 0; i < depth && frame.outer !== null; i++) frame = frame.outer;
    return frame;
  }

  read({ name, binding, line }: NameExpression): Value {
    if (binding === null || binding.kind === 'builtin') return builtins.get(name) ?? null;
    const value = this.#holder(binding).values[binding.slot];
    return value === undefined ? unassigned(name, line) : value;
  }

  #holder(binding: Binding): Frame {
    if (binding.kind === 'local') return this.at(binding.depth);
    return this.module;
  }
}

/** @throws PolicyError policy_runtime, always */
export function unassigned(name: string, line: number): never {
  return fail(line, `${name} has no value yet. Assign it on every way to this line`);
}
