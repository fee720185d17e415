/** Modules out of WebAssembly's text format, by binaryen; and one function of a module, called as a policy. */

import type {
  Budget,
  PolicyFunction,
  PolicyInstance,
  Signature,
} from '../../../../src/policy/sandbox/program.ts';
import { WasmPolicy } from '../../../../src/policy/sandbox/wasm/wasmPolicy.ts';
import { isInstalled } from '../../../extras.ts';

const binaryen = isInstalled('binaryen') ? (await import('binaryen')).default : undefined;

/** As it is written: nothing is optimised. Tests that come here without binaryen ask `hasExtra` first. */
export function assemble(text: string): Uint8Array {
  if (binaryen === undefined) throw new Error('binaryen is not installed: npm run extras');
  const module = binaryen.parseText(text);
  module.setFeatures(binaryen.Features.All);
  try {
    return module.emitBinary();
  } finally {
    module.dispose();
  }
}

/** A module with memory and `alloc`, and the fields given. */
export function policyText(fields: string, pages = 1): string {
  return `(module (memory (export "memory") ${pages})
    (global $top (mut i32) (i32.const 8))
    (func (export "alloc") (param i32) (result i32)
      global.get $top (global.set $top (i32.add (global.get $top) (local.get 0))))
    ${fields})`;
}

/** A function of one number: `run(input) -> f64`, where the input's only field is `x`. */
export const run: Signature = {
  name: 'run',
  inputs: [{ name: 'input', kind: 'record', fields: { x: 'float' } }],
  decision: { kind: 'number' },
};

export interface Running {
  readonly instance: PolicyInstance;
  readonly policy: PolicyFunction;
  call(x: number): number;
}

export function running(bytes: Uint8Array, budget: Budget = {}): Running {
  const instance = new WasmPolicy(bytes).instantiate(budget);
  const policy = instance.bind(run);
  return {
    instance,
    policy,
    call(x) {
      policy.inputs[0].values[0] = x;
      return policy.call()[0];
    },
  };
}

/** A module whose `run` has this body; `$in` is the address of x. */
export function runOf(body: string, rest = '', pages = 1): Uint8Array {
  return assemble(
    policyText(`${rest} (func $run (export "run") (param $in i32) (result f64) ${body})`, pages),
  );
}

/** A module whose `run` has these bytes as its body, without a text in between. */
export function moduleWith(body: readonly number[]): Uint8Array {
  const leb = (value: number): number[] =>
    value < 128 ? [value] : [(value & 127) | 128, ...leb(Math.floor(value / 128))];
  const section = (id: number, content: readonly number[]): number[] => [
    id,
    ...leb(content.length),
    ...content,
  ];
  const name = (text: string): number[] => [text.length, ...Buffer.from(text)];
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [2, 0x60, 1, 0x7f, 1, 0x7c, 0x60, 1, 0x7f, 1, 0x7f]),
    ...section(3, [2, 0, 1]),
    ...section(5, [1, 0, 1]),
    ...section(7, [3, ...name('run'), 0, 0, ...name('alloc'), 0, 1, ...name('memory'), 2, 0]),
    ...section(10, [2, ...leb(body.length + 2), 0, ...body, 0x0b, 4, 0, 0x41, 8, 0x0b]),
  ]);
}
