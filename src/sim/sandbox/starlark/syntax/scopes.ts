/**
 * The scopes of names while a program is resolved. A function has one scope for all its names, whatever block
 * they stand in; a comprehension has one for its variables.
 */

import type { Binding, FunctionNode } from './ast.ts';

export class FunctionScope {
  readonly node: FunctionNode;
  readonly outer: FunctionScope | null;
  /** Scopes of names, the function's own first, then those of the comprehensions around this place. */
  readonly #names: Map<string, number>[] = [new Map()];
  /** Slots that hold a value on every way to this place. */
  #certain = new Set<number>();

  constructor(node: FunctionNode, outer: FunctionScope | null) {
    this.node = node;
    this.outer = outer;
  }

  get isModule(): boolean {
    return this.outer === null;
  }

  /** A slot for the name in the innermost scope, made once. */
  declare(name: string): number {
    const scope = this.#names[this.#names.length - 1];
    let slot = scope.get(name);
    if (slot === undefined) {
      slot = this.node.slots.length;
      this.node.slots.push(name);
      scope.set(name, slot);
    }
    return slot;
  }

  slotOf(name: string): number | undefined {
    for (let i = this.#names.length - 1; i >= 0; i--) {
      const slot = this.#names[i].get(name);
      if (slot !== undefined) return slot;
    }
    return undefined;
  }

  names(): string[] {
    return this.#names.flatMap((scope) => [...scope.keys()]);
  }

  /** Runs `work` with a new innermost scope. */
  inner(work: () => void): void {
    this.#names.push(new Map());
    work();
    this.#names.pop();
  }

  markCertain(slot: number): void {
    this.#certain.add(slot);
  }

  isCertain(slot: number): boolean {
    return this.#certain.has(slot);
  }

  /** What `branch` makes certain holds within it alone: it may not run. */
  branch(branch: () => void): void {
    const before = new Set(this.#certain);
    branch();
    this.#certain = before;
  }
}

/** Where a name is found from within `scope`, outwards. */
export function lookUp(scope: FunctionScope, name: string): Binding | undefined {
  let depth = 0;
  for (let each: FunctionScope | null = scope; each !== null; each = each.outer) {
    const slot = each.slotOf(name);
    if (slot !== undefined) {
      if (each.isModule && depth > 0) return { kind: 'global', slot };
      capture(scope, slot, depth);
      return { kind: 'local', slot, depth, isCertain: depth === 0 && each.isCertain(slot) };
    }
    depth++;
  }
  return undefined;
}

/** Every function between the name and its variable holds on to the variable. */
function capture(scope: FunctionScope, slot: number, depth: number): void {
  let each = scope;
  for (let left = depth; left > 0; left--) {
    const { captures } = each.node;
    if (!captures.some((known) => known.slot === slot && known.depth === left)) {
      captures.push({ slot, depth: left });
    }
    if (each.outer === null) return;
    each = each.outer;
  }
}
