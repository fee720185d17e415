/**
 * What the rewriter adds to a module: counters as globals, and functions in the place of instructions whose
 * cost depends on their operands. Everything of the module keeps its number; additions come behind it.
 */

import { ByteWriter, I32 } from '../binary/index.ts';
import { extended, op } from './instructions.ts';

/** Why the module stopped itself, in the global of that name. */
export const stopReasons = { none: 0, steps: 1, memory: 2, depth: 3 } as const;

/**
 * Values that the functions of one call chain may hold: locals, operands and a fixed part for each function.
 * Far below what engines have room for, so that they never overflow first.
 */
export const STACK_VALUES = 16_384;

/** Numbers of the globals and functions that are added. */
export class Additions {
  /** Steps left, steps of a call, values left on the stack, why it stopped, pages that memory may have. */
  readonly fuel: number;
  readonly fuelLimit: number;
  readonly stack: number;
  readonly reason: number;
  readonly pageLimit: number;
  readonly grow: number;
  readonly copy: number;
  readonly fill: number;

  constructor(globals: number, functions: number) {
    this.fuel = globals;
    this.fuelLimit = globals + 1;
    this.stack = globals + 2;
    this.reason = globals + 3;
    this.pageLimit = globals + 4;
    this.grow = functions;
    this.copy = functions + 1;
    this.fill = functions + 2;
  }

  static readonly globalCount: number = 5;
  static readonly functionCount: number = 3;
}

/** Code that stops the module. */
export function writeStop(out: ByteWriter, { reason }: Additions, why: number): ByteWriter {
  return out.byte(op.i32Const).signed(why).byte(op.globalSet).unsigned(reason).byte(op.unreachable);
}

/**
 * Code that takes `amount` from a counter, and stops where it falls below 0. @param local an i32 for its use
 */
export function writeSpend(
  out: ByteWriter,
  additions: Additions,
  counter: number,
  why: number,
  local: number,
  amount: (out: ByteWriter) => void,
): void {
  out.byte(op.globalGet).unsigned(counter);
  amount(out);
  out.byte(op.i32Sub, op.localTee).unsigned(local).byte(op.globalSet).unsigned(counter);
  out.byte(op.localGet).unsigned(local).byte(op.i32Const, 0, op.i32LtS, op.if, VOID);
  writeStop(out, additions, why).byte(op.end);
}

/** Type of a block without results. */
export const VOID = 0x40;

/**
 * `memory.grow` that stops the module at its limit. Growing up to what the module itself declares as its most
 * gives -1 beyond, as the instruction does.
 */
export function growBody(additions: Additions, memory: { readonly max: number | null } | null): ByteWriter {
  const declaredMax = memory?.max ?? null;
  const out = new ByteWriter().byte(0);
  const room = (limit: (out: ByteWriter) => void): void => {
    out.byte(op.localGet, 0);
    limit(out);
    out.byte(op.memorySize, 0, op.i32Sub, op.i32GtU);
  };
  if (declaredMax !== null) {
    room((into) => into.byte(op.i32Const).signed(declaredMax));
    out.byte(op.if, VOID, op.i32Const).signed(-1).byte(op.return, op.end);
  }
  room((into) => into.byte(op.globalGet).unsigned(additions.pageLimit));
  out.byte(op.if, VOID);
  writeStop(out, additions, stopReasons.memory).byte(op.end);
  return out.byte(op.localGet, 0, op.memoryGrow, 0, op.end);
}

/** `memory.copy` and `memory.fill`, a step for each 8 bytes. */
export function bulkBody(additions: Additions, instruction: 'copy' | 'fill'): ByteWriter {
  const out = new ByteWriter().byte(1, 1, I32);
  writeSpend(out, additions, additions.fuel, stopReasons.steps, 3, (into) =>
    into.byte(op.localGet, 2, op.i32Const, 3, op.i32ShrU),
  );
  out.byte(op.localGet, 0, op.localGet, 1, op.localGet, 2, op.extended);
  if (instruction === 'copy') out.byte(extended.memoryCopy, 0, 0);
  else out.byte(extended.memoryFill, 0);
  return out.byte(op.end);
}
