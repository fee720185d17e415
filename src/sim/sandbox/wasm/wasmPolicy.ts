/**
 * WebAssembly behind the interface of all languages. A module exports its memory, `alloc(bytes)` and the
 * functions of its slot; it imports nothing. All that it remembers is its memory and its globals.
 */

import type { PlainState } from '../../control/policy.ts';
import { decodeBase64 } from '../../random/base64.ts';
import { requireSignature, type Signature } from '../calls/index.ts';
import type { Budget } from '../meter.ts';
import { PolicyError } from '../policyError.ts';
import type { PolicyFunction, PolicyInstance, PolicyProgram } from '../program.ts';
import {
  exportKinds,
  F64,
  type FunctionType,
  I32,
  type ModuleParts,
  parseModule,
  refuse,
} from './binary/index.ts';
import { Layout } from './layout.ts';
import { Machine, type WasmCall } from './machine.ts';
import { rewriteModule } from './metering/index.ts';
import { Places } from './places.ts';
import { WasmFunction, wasmType } from './wasmFunction.ts';

export class WasmPolicy implements PolicyProgram {
  readonly language = 'wasm';
  readonly #parts: ModuleParts;
  readonly #module: WebAssembly.Module;

  /**
   * @param source bytes of the module, or these in base64
   * @throws PolicyError compile, contract
   */
  constructor(source: string | Uint8Array) {
    const bytes = typeof source === 'string' ? decode(source) : Uint8Array.from(source);
    this.#parts = parseModule(bytes);
    if (!WebAssembly.validate(bytes)) refuse('is not valid: its types or numbers do not fit together');
    const { memory, exports } = this.#parts;
    if (memory === null || !exports.some(({ kind }) => kind === exportKinds.memory)) {
      throw new PolicyError('contract', 'the module exports no memory. Export it as "memory"');
    }
    requireType(this.#parts, 'alloc', { params: [I32], results: [I32] }, 'alloc(bytes)');
    this.#module = new WebAssembly.Module(rewriteModule(this.#parts));
  }

  instantiate(budget: Budget = {}): PolicyInstance {
    return new WasmPolicyInstance(this.#parts, () => {
      return new Machine(this.#module, this.#parts.memory?.min ?? 0, budget);
    });
  }
}

class WasmPolicyInstance implements PolicyInstance {
  readonly #parts: ModuleParts;
  readonly #newMachine: () => Machine;
  readonly #functions: WasmFunction[] = [];
  readonly #places: Places;
  readonly #layout: Layout;
  #machine: Machine;
  #alloc: WasmCall;

  constructor(parts: ModuleParts, newMachine: () => Machine) {
    this.#parts = parts;
    this.#newMachine = newMachine;
    this.#layout = new Layout(parts);
    this.#machine = newMachine();
    this.#alloc = this.#callee('alloc');
    this.#places = new Places(this.#machine.memory, (bytes) => this.#machine.run(this.#alloc, [bytes]));
    if (parts.start !== null) this.#machine.run(this.#machine.function(parts.start), []);
    this.#places.follow();
  }

  get stepsUsed(): number {
    return this.#machine.stepsUsed;
  }

  get memoryUsed(): number {
    return this.#machine.memoryUsed;
  }

  has(name: string): boolean {
    return functionNumber(this.#parts, name) >= 0;
  }

  bind(signature: Signature): PolicyFunction {
    requireSignature(signature);
    const { name, inputs } = signature;
    const { params, returnsNumber } = wasmType(signature);
    const type = { params: Array(params).fill(I32), results: returnsNumber ? [F64] : [] };
    const about = inputs.map((input) => `${input.name}${input.kind === 'records' ? ', count' : ''}`);
    requireType(
      this.#parts,
      name,
      type,
      `${name}(${about.join(', ')}${params > about.length ? ', ...' : ''})`,
    );
    this.#layout.tell(inputs, this.#machine);
    const bound = new WasmFunction(signature, {
      machine: this.#machine,
      callee: this.#callee(name),
      places: this.#places,
      layout: this.#layout,
    });
    this.#functions.push(bound);
    return bound;
  }

  snapshot(): PlainState {
    return { ...this.#machine.snapshot(), places: this.#places.snapshot() };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const { places } = state as { readonly places: PlainState };
    this.#places.restore(places);
    if (this.#machine.pages > Machine.pagesOf(state)) {
      this.#machine = this.#newMachine();
      this.#alloc = this.#callee('alloc');
      for (const each of this.#functions) each.runOn(this.#machine, this.#callee(each.signature.name));
    }
    this.#machine.restore(state);
    this.#places.moveTo(this.#machine.memory);
  }

  #callee(name: string): WasmCall {
    return this.#machine.function(functionNumber(this.#parts, name));
  }
}

function functionNumber({ exports }: ModuleParts, name: string): number {
  const found = exports.find((each) => each.name === name && each.kind === exportKinds.function);
  return found === undefined ? -1 : found.index;
}

/** @throws PolicyError contract where the function is missing or has another type */
function requireType(parts: ModuleParts, name: string, wanted: FunctionType, call: string): void {
  const index = functionNumber(parts, name);
  if (index < 0) throw new PolicyError('contract', `the module exports no function ${name}. Export ${call}`);
  const { params, results } = parts.types[parts.functions[index]];
  if (String(params) === String(wanted.params) && String(results) === String(wanted.results)) return;
  const result = wanted.results.length === 0 ? 'nothing' : wanted.results[0] === F64 ? 'f64' : 'i32';
  const takes = `takes ${wanted.params.length} numbers of type i32 and returns ${result}`;
  throw new PolicyError('contract', `${call} ${takes}; the module's has another type`);
}

function decode(text: string): Uint8Array<ArrayBuffer> {
  try {
    return decodeBase64(text);
  } catch {
    return refuse('is no base64. Give the bytes of a .wasm file in base64');
  }
}
