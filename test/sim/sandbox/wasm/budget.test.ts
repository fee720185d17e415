import { describe, expect, test } from 'vitest';
import { thrownKind } from '../thrownKind.ts';
import { running, runOf } from './fromText.ts';

const x = '(f64.load (local.get $in))';

describe('a WASM policy that wants too much', () => {
  test('loops without end', () => {
    const bytes = runOf('(loop $l (br $l)) (f64.const 0)');
    for (const steps of [1_000, 100_000, 1_000_000]) {
      const { instance, call } = running(bytes, { steps });
      expect(thrownKind(() => call(0))).toBe('step_limit');
      expect(instance.stepsUsed).toBe(steps);
    }
  });

  test('stops at the same turn of its loop for the same budget', () => {
    const bytes = runOf(
      `(loop $l (global.set $n (i32.add (global.get $n) (i32.const 1))) (br $l)) (f64.const 0)`,
      `(global $n (mut i32) (i32.const 0)) (func (export "turns") (param i32) (result f64) (f64.convert_i32_u (global.get $n)))`,
    );
    const turns = { ...running(bytes).policy.signature, name: 'turns' };
    for (const steps of [1_000, 100_000]) {
      const { instance, call } = running(bytes, { steps });
      expect(thrownKind(() => call(0))).toBe('step_limit');
      // the `loop` once, then four instructions and a branch in each turn
      expect(instance.bind(turns).call()[0]).toBe(Math.floor((steps - 1) / 5));
    }
  });

  test('calls itself without end', () => {
    const bytes = runOf('(call $run (local.get $in))');
    expect(thrownKind(() => running(bytes).call(0))).toBe('policy_runtime');
    const many = Array.from({ length: 400 }, () => '(f64.const 1)').join(' ');
    const wide = runOf(`${many} (call $run (local.get $in)) ${'f64.add '.repeat(400)}`);
    expect(thrownKind(() => running(wide, { steps: 1e8 }).call(0))).toBe('policy_runtime');
  });

  test('calls itself as deep as it may, again and again', () => {
    const body = `(if (result f64) (f64.le ${x} (f64.const 0)) (then (f64.const 0)) (else
      (f64.store (local.get $in) (f64.sub ${x} (f64.const 1)))
      (f64.add (f64.const 1) (call $run (local.get $in)))))`;
    const { call } = running(runOf(body));
    for (let i = 0; i < 100; i++) expect(call(500)).toBe(500);
    expect(thrownKind(() => call(100_000))).toBe('policy_runtime');
    expect(call(500)).toBe(500);
  });

  test('grows its memory without end', () => {
    const bytes = runOf('(loop $l (drop (memory.grow (i32.const 1))) (br $l)) (f64.const 0)');
    const { instance, call } = running(bytes, { memoryUnits: 100_000 });
    expect(thrownKind(() => call(0))).toBe('memory_limit');
    expect(instance.memoryUsed).toBeLessThanOrEqual(100_000);
    expect(
      thrownKind(() => running(runOf('(drop (memory.grow (i32.const -1))) (f64.const 0)')).call(0)),
    ).toBe('memory_limit');
  });

  test('begins with more memory than it may have', () => {
    expect(thrownKind(() => running(runOf('(f64.const 0)', '', 200)))).toBe('memory_limit');
  });

  test('moves more bytes than its steps pay for', () => {
    const bytes = runOf(
      '(loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 65536)) (br $l)) (f64.const 0)',
    );
    const { instance, call } = running(bytes, { steps: 100_000 });
    expect(thrownKind(() => call(0))).toBe('step_limit');
    expect(instance.stepsUsed).toBe(100_000);
    const one = running(runOf('(memory.copy (i32.const 0) (i32.const 0) (i32.const 800)) (f64.const 7)'));
    expect(one.call(0)).toBe(7);
    expect(one.instance.stepsUsed).toBe(5 + 100);
  });

  test.each([
    ['unreachable', '(unreachable)'],
    ['reads outside', '(f64.load (i32.const -8))'],
    ['divides by zero', '(f64.convert_i32_s (i32.div_s (i32.const 1) (i32.const 0)))'],
    ['overflows', '(f64.convert_i32_s (i32.div_s (i32.const 0x80000000) (i32.const -1)))'],
    ['truncates NaN', '(f64.convert_i32_s (i32.trunc_f64_s (f64.const nan)))'],
  ])('%s', (_, body) => {
    const { instance, call } = running(runOf(body));
    expect(thrownKind(() => call(0))).toBe('policy_runtime');
    expect(instance.stepsUsed).toBeGreaterThan(0);
  });

  test('returns NaN', () => {
    expect(thrownKind(() => running(runOf('(f64.const nan)')).call(0))).toBe('invalid_decision');
  });
});
