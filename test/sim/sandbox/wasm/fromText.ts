/** Modules out of WebAssembly's text format, by binaryen; and one function of a module, called as a policy. */

import binaryen from 'binaryen';
import type { Budget, PolicyFunction, PolicyInstance, Signature } from '../../../../src/sim/sandbox/index.ts';
import { WasmPolicy } from '../../../../src/sim/sandbox/wasm/index.ts';

/** As it is written: nothing is optimised. */
export function assemble(text: string): Uint8Array {
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
