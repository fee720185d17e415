/**
 * Writes a module anew, metered and with exports of our own: each exported function behind one that fills its
 * budget up, the memory, and every global that can change, so that the host sees all that a module remembers.
 */

import {
  ByteWriter,
  exportKinds,
  type FunctionType,
  I32,
  type ModuleParts,
  sections,
} from '../binary/index.ts';
import { Additions, bulkBody, growBody, STACK_VALUES } from './additions.ts';
import { op } from './instructions.ts';
import { BodyMeter, type MeterRules } from './meterBody.ts';

/** Names of the exports; `f<n>` and `g<n>` are followed by the number that function or global has. */
export const exportNames = {
  memory: 'memory',
  fuel: 'fuel',
  fuelLimit: 'fuelLimit',
  reason: 'reason',
  pageLimit: 'pageLimit',
  function: 'f',
  global: 'g',
} as const;

type Export = readonly [name: string, kind: number, index: number];

/** A policy's module. @throws PolicyError compile */
export function rewriteModule(module: ModuleParts): Uint8Array<ArrayBuffer> {
  const writer = new ModuleWriter(module, { depth: true, canonicalNaN: true, step: 'instruction' });
  const { additions } = writer;
  const wrapped = [
    ...new Set([
      ...module.exports.filter(({ kind }) => kind === exportKinds.function).map(({ index }) => index),
      ...(module.start === null ? [] : [module.start]),
    ]),
  ];
  const exports: Export[] = [
    [exportNames.fuel, exportKinds.global, additions.fuel],
    [exportNames.fuelLimit, exportKinds.global, additions.fuelLimit],
    [exportNames.reason, exportKinds.global, additions.reason],
    [exportNames.pageLimit, exportKinds.global, additions.pageLimit],
  ];
  if (module.memory !== null) exports.push([exportNames.memory, exportKinds.memory, 0]);
  for (const index of wrapped) {
    const wrapper = writer.add(module.functions[index], wrapperBody(module, index, additions));
    exports.push([exportNames.function + index, exportKinds.function, wrapper]);
  }
  module.globals.forEach(({ isMutable }, i) => {
    if (isMutable) exports.push([exportNames.global + i, exportKinds.global, i]);
  });
  return writer.write(exports);
}

/**
 * A module of the host's own that runs what others wrote: it keeps its imports and exports, and counts its
 * turns down in a global, which the host sets before it calls.
 */
export function meterEngine(module: ModuleParts): Uint8Array<ArrayBuffer> {
  const writer = new ModuleWriter(module, { depth: false, canonicalNaN: false, step: 'turn' });
  return writer.write([
    ...module.exports.map(({ name, kind, index }) => [name, kind, index] as const),
    [exportNames.fuel, exportKinds.global, writer.additions.fuel],
  ]);
}

/** The metered functions of a module, those that come behind them, and the sections around them. */
class ModuleWriter {
  readonly additions: Additions;
  readonly #module: ModuleParts;
  readonly #types: TypeList;
  readonly #functions: number[];
  readonly #bodies: ByteWriter[];

  constructor(module: ModuleParts, rules: MeterRules) {
    this.#module = module;
    const types = new TypeList(module.types);
    this.#types = types;
    this.additions = new Additions(module.globals.length, module.functions.length);
    this.#functions = [...module.functions];
    this.#bodies = module.bodies.map((_, i) => {
      return new BodyMeter(module, i, this.additions, rules, (type) => types.blockType(type)).meter();
    });
    if (module.memory === null && !module.imports.memory) return;
    this.add(types.number({ params: [I32], results: [I32] }), growBody(this.additions, module.memory));
    const bulk = types.number({ params: [I32, I32, I32], results: [] });
    this.add(bulk, bulkBody(this.additions, 'copy'));
    this.add(bulk, bulkBody(this.additions, 'fill'));
  }

  /** @returns the number of the function */
  add(type: number, body: ByteWriter): number {
    this.#bodies.push(body);
    return this.#functions.push(type) - 1;
  }

  write(exports: readonly Export[]): Uint8Array<ArrayBuffer> {
    const module = this.#module;
    const out = new ByteWriter().byte(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);
    section(out, sections.type, list(this.#types.all, writeType));
    raw(out, sections.import, module.imports.section);
    section(
      out,
      sections.function,
      list(this.#functions.slice(module.imports.functions), (into, type) => into.unsigned(type)),
    );
    raw(out, sections.table, module.tables);
    if (module.memory !== null) {
      section(out, sections.memory, new ByteWriter().byte(1, 0).unsigned(module.memory.min));
    }
    section(out, sections.global, globalSection(module));
    section(
      out,
      sections.export,
      list(exports, (into, [name, kind, index]) => into.name(name).byte(kind).unsigned(index)),
    );
    raw(out, sections.element, module.elements);
    section(
      out,
      sections.code,
      list(this.#bodies, (into, body) => into.sized(body)),
    );
    raw(out, sections.data, module.data);
    return out.bytes;
  }
}

class TypeList {
  readonly all: FunctionType[];

  constructor(types: readonly FunctionType[]) {
    this.all = [...types];
  }

  number(type: FunctionType): number {
    const { params, results } = type;
    const same = (a: readonly number[], b: readonly number[]): boolean => String(a) === String(b);
    const found = this.all.findIndex((each) => same(each.params, params) && same(each.results, results));
    return found < 0 ? this.all.push(type) - 1 : found;
  }

  /** As it stands behind `block`: nothing, a type of a value, or the number of a type. */
  blockType(type: FunctionType): number {
    if (type.results.length === 0) return -0x40;
    return type.results.length === 1 ? type.results[0] - 0x80 : this.number(type);
  }
}

function wrapperBody(module: ModuleParts, index: number, additions: Additions): ByteWriter {
  const { params } = module.types[module.functions[index]];
  const out = new ByteWriter().byte(0, op.globalGet).unsigned(additions.fuelLimit);
  out.byte(op.globalSet).unsigned(additions.fuel);
  out.byte(op.i32Const).signed(STACK_VALUES).byte(op.globalSet).unsigned(additions.stack);
  params.forEach((_, i) => {
    out.byte(op.localGet).unsigned(i);
  });
  return out.byte(op.call).unsigned(index).byte(op.end);
}

function globalSection({ globals }: ModuleParts): ByteWriter {
  const out = new ByteWriter().unsigned(globals.length + Additions.globalCount);
  for (const { type, isMutable, initial } of globals) out.byte(type, isMutable ? 1 : 0).append(initial);
  for (let i = 0; i < Additions.globalCount; i++) out.byte(I32, 1, op.i32Const, 0, op.end);
  return out;
}

function writeType(out: ByteWriter, { params, results }: FunctionType): void {
  out.byte(0x60).unsigned(params.length).append(params).unsigned(results.length).append(results);
}

function list<T>(items: readonly T[], write: (out: ByteWriter, item: T) => void): ByteWriter {
  const out = new ByteWriter().unsigned(items.length);
  for (const item of items) write(out, item);
  return out;
}

function section(out: ByteWriter, id: number, content: ByteWriter): void {
  out.byte(id).sized(content);
}

function raw(out: ByteWriter, id: number, content: Uint8Array | null): void {
  if (content !== null) out.byte(id).unsigned(content.length).append(content);
}
