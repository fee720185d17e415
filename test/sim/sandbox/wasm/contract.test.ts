import { describe, expect, test } from 'vitest';
import { loadProgram } from '../../../../src/policy/sandbox/loadProgram.ts';
import type { Signature } from '../../../../src/policy/sandbox/program.ts';
import { textHash, WasmPolicy } from '../../../../src/policy/sandbox/wasm/wasmPolicy.ts';
import { thrownKind } from '../thrownKind.ts';
import { assemble, policyText, run, running, runOf } from './fromText.ts';

describe('a WASM module is refused', () => {
  test.each([
    [
      'an import',
      '(module (import "env" "now" (func (result f64))) (memory (export "memory") 1))',
      /imports env\.now/,
    ],
    ['an imported memory', '(module (import "env" "memory" (memory 1)))', /imports env\.memory/],
    ['no memory', '(module)', /exports no memory/],
    ['no alloc', '(module (memory (export "memory") 1))', /exports no function alloc/],
    [
      'another alloc',
      '(module (memory (export "memory") 1) (func (export "alloc") (param f64) (result i32) (i32.const 0)))',
      /alloc\(bytes\) takes 1 numbers of type i32 and returns i32/,
    ],
    ['threads', policyText('(func (drop (i32.atomic.load (i32.const 0))))'), /0xfe.*threads/],
    ['vectors', policyText('(func (drop (f64x2.splat (f64.const 1))))'), /0xfd.*SIMD/],
    ['shared memory', '(module (memory (export "memory") 1 1 shared))', /shared memory/],
    ['references', policyText('(func (param externref))'), /values other than/],
    ['tail calls', policyText('(func $f (return_call $f))'), /0x12/],
    ['exceptions', policyText('(tag $t) (func (throw $t))'), /section of kind 13|0x8/],
    ['passive data', policyText('(data "x")'), /passive data/],
    ['a huge table', policyText('(table 100000 funcref)'), /a table of 100000/],
    ['many locals', policyText(`(func (local ${'f64 '.repeat(1001)}))`), /1001 locals/],
    ['data outside', policyText('(data (i32.const 65536) "x")'), /outside its memory/],
  ])('for %s', (_, text, message) => {
    expect(() => new WasmPolicy(assemble(text)).instantiate()).toThrow(message);
  });

  test('for bytes that are not a valid module', async () => {
    await expect(loadProgram('wasm', 'no base64!')).rejects.toThrow(/^compile: .*base64/);
    await expect(loadProgram('wasm', btoa('#!/bin/sh'))).rejects.toThrow(/^compile: .*WebAssembly/);
    // local.get 0 in a function of no parameters and locals
    const body = [
      0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0, 10, 7, 1, 5, 0, 0x20, 0, 0x1a, 0x0b,
    ];
    expect(() => new WasmPolicy(Uint8Array.from(body))).toThrow(/^compile: .*not valid/);
  });

  test('for a function of other types', () => {
    const other = assemble(policyText('(func (export "run") (param f64) (result f64) (local.get 0))'));
    expect(thrownKind(() => running(other))).toBe('contract');
    const none = new WasmPolicy(assemble(policyText(''))).instantiate();
    expect(none.has('run')).toBe(false);
    expect(() => none.bind(run)).toThrow('contract: the module exports no function run. Export run(input)');
    const wild = `(module (memory (export "memory") 1)
      (func (export "alloc") (param i32) (result i32) (i32.const 65532))
      (func (export "run") (param i32) (result f64) (f64.const 0)))`;
    expect(thrownKind(() => running(assemble(wild)))).toBe('contract');
  });
});

describe('what a WASM policy remembers', () => {
  const counting = runOf(
    `(global.set $n (i64.add (global.get $n) (i64.const 1)))
     (global.set $f (f64.add (global.get $f) (f64.load (local.get $in))))
     (f64.store (i32.const 1024) (f64.add (f64.load (i32.const 1024)) (global.get $f)))
     (drop (memory.grow (i32.const 1)))
     (f64.add (f64.convert_i64_s (global.get $n))
       (f64.add (f64.load (i32.const 1024)) (f64.convert_i32_u (memory.size))))`,
    '(global $n (mut i64) (i64.const -9000000000000)) (global $f (mut f64) (f64.const 0.5))',
  );

  test('is its memory and its globals, and can be put back', () => {
    const first = running(counting);
    first.call(1);
    const state = structuredClone(first.instance.snapshot());
    const later = [first.call(2), first.call(3)];
    first.instance.restore(state);
    expect([first.call(2), first.call(3)]).toEqual(later);
    const second = running(counting);
    second.call(9);
    second.instance.restore(state);
    expect([second.call(2), second.call(3)]).toEqual(later);
    expect(second.instance.snapshot()).toEqual(first.instance.snapshot());
  });

  test('cannot be put into an instance with other functions', () => {
    const state = running(counting).instance.snapshot();
    const bare = new WasmPolicy(counting).instantiate();
    expect(() => bare.restore(state)).toThrow(/Bind the same functions/);
  });

  test('begins with what its start function did, within a budget', () => {
    const start =
      '(global $n (mut f64) (f64.const 0)) (func $begin (global.set $n (f64.const 5))) (start $begin)';
    expect(running(runOf('(global.get $n)', start)).call(0)).toBe(5);
    const endless = runOf('(f64.const 0)', '(func $begin (loop $l (br $l))) (start $begin)');
    expect(thrownKind(() => running(endless))).toBe('step_limit');
  });
});

describe('a WASM policy', () => {
  const choose: Signature = {
    name: 'choose',
    inputs: [
      { name: 'request', kind: 'record', fields: { size: 'int', tenant: 'text', urgent: 'bool' } },
      { name: 'rows', kind: 'records', fields: { a: 'int', b: 'float' } },
    ],
    decision: { kind: 'choice', names: ['yes', 'no', 'wait'], withAmount: ['wait'] },
  };
  const instance = (body: string) =>
    new WasmPolicy(
      assemble(
        policyText(`(func (export "choose") (param $request i32) (param $rows i32) (param $count i32)
          (param $amount i32) (result f64) ${body})`),
      ),
    )
      .instantiate()
      .bind(choose);

  test('gets fields in order, texts as hashes, and rows with their number', () => {
    const policy = instance(`(f64.store (local.get $amount) (f64.add
      (f64.load offset=8 (local.get $request))
      (f64.load offset=24 (local.get $rows)))) (f64.const 2)`);
    const [request, rows] = policy.inputs;
    request.texts[request.field('tenant')] = 'a';
    rows.resize(2);
    rows.values.set([1, 2, 3, 4]);
    expect([...policy.call()]).toEqual([2, 0xe40c292c + 4]);
    expect(textHash('foobar')).toBe(0xbf9cf968);
    const counting = instance('(f64.convert_i32_u (i32.sub (local.get $count) (i32.const 1)))');
    counting.inputs[1].resize(2);
    expect([...counting.call()]).toEqual([1, 0]);
  });

  test.each(['(f64.const 3)', '(f64.const -1)', '(f64.const 0.5)', '(f64.const nan)'])(
    'cannot choose %s',
    (body) => {
      expect(thrownKind(() => instance(body).call())).toBe('invalid_decision');
    },
  );

  test('finds its tables again after memory has moved and lists have grown', () => {
    const policy = instance(`(drop (memory.grow (i32.const 1))) (f64.store (local.get $amount)
      (f64.load (i32.add (local.get $rows) (i32.mul (i32.const 16) (i32.sub (local.get $count) (i32.const 1))))))
      (f64.const 2)`);
    const [, rows] = policy.inputs;
    for (const count of [1, 9, 40, 200, 2]) {
      rows.resize(count);
      for (let i = 0; i < count; i++) rows.values[2 * i] = 1000 + i;
      expect(policy.call()[1]).toBe(1000 + count - 1);
    }
  });
});
