import binaryen from 'binaryen';
import { describe, expect, test } from 'vitest';
import { rewriteModule } from '../../../../src/policy/sandbox/wasm/metering.ts';
import { parseModule } from '../../../../src/policy/sandbox/wasm/module.ts';
import { sized } from '../../../sized.ts';
import { thrownKind } from '../thrownKind.ts';
import { assemble, policyText, running, runOf } from './fromText.ts';
import { RandomModules, Trap } from './randomModules.ts';

describe('steps of a module', () => {
  test('are its instructions, one by one, in random modules', () => {
    let ended = 0;
    let trapped = 0;
    for (let seed = 1; seed <= sized(150, 400); seed++) {
      const module = new RandomModules(seed).module();
      const { instance, call } = running(module.bytes, { steps: 100_000 });
      for (const x of [0, 1, 7]) {
        const at = `seed ${seed}, x ${x}`;
        let expected: ReturnType<typeof module.run>;
        try {
          expected = module.run(x);
        } catch (error) {
          if (!(error instanceof Trap)) throw error;
          expect(
            thrownKind(() => call(x)),
            at,
          ).toBe('policy_runtime');
          trapped++;
          continue;
        }
        expect(call(x), at).toBe(expected.result);
        expect(instance.stepsUsed, at).toBe(expected.steps);
        const enough = running(module.bytes, { steps: expected.steps });
        expect(enough.call(x), at).toBe(expected.result);
        const tooFew = running(module.bytes, { steps: expected.steps - 1 });
        expect(
          thrownKind(() => tooFew.call(x)),
          at,
        ).toBe('step_limit');
        ended++;
      }
    }
    expect(ended).toBeGreaterThan(sized(150, 500));
    expect(trapped).toBeGreaterThan(sized(15, 50));
  });

  test('are the lines of a loop in binaryen’s flat text', () => {
    const bytes = runOf(`(local $n i32) (local $sum f64)
      (local.set $n (i32.trunc_f64_s (f64.load (local.get $in))))
      (loop $l
        (local.set $sum (f64.add (local.get $sum) (f64.sqrt (f64.convert_i32_s (local.get $n)))))
        (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
      (local.get $sum)`);
    const module = binaryen.readBinary(bytes);
    const lines = module
      .emitStackIR()
      .split('\n')
      .map((line) => line.trim());
    const loop = lines.slice(lines.findIndex((line) => line.startsWith('loop')) + 1);
    const perTurn = loop.slice(0, loop.indexOf('end')).length;
    expect(perTurn).toBeGreaterThan(8);
    const { instance, call } = running(bytes);
    const steps = [1, 2, 3, 50].map((x) => {
      call(x);
      return instance.stepsUsed;
    });
    expect(steps.map((each) => each - steps[0])).toEqual([0, perTurn, 2 * perTurn, 49 * perTurn]);
  });
});

describe('a rewritten module', () => {
  test('is valid for binaryen, random modules included', () => {
    for (let seed = 1; seed <= 40; seed++) {
      const { bytes } = new RandomModules(seed).module();
      const module = binaryen.readBinary(rewriteModule(parseModule(bytes)));
      const { MutableGlobals, BulkMemory, BulkMemoryOpt } = binaryen.Features;
      module.setFeatures(MutableGlobals | BulkMemory | BulkMemoryOpt);
      expect(module.validate(), `seed ${seed}`).toBe(1);
      module.dispose();
    }
  });

  test('keeps blocks with parameters, several results, tables, indirect calls and early ends', () => {
    const bytes = assemble(
      policyText(`
        (type $pair (func (param f64) (result f64 f64)))
        (table 2 2 funcref) (elem (i32.const 0) $twice $pairOf)
        (func $twice (param f64) (result f64) (f64.mul (local.get 0) (f64.const 2)))
        (func $pairOf (param f64) (result f64 f64)
          (if (f64.gt (local.get 0) (f64.const 100)) (then (return (f64.const 1) (f64.const 2))))
          (f64.const 3) (call_indirect (param f64) (result f64) (local.get 0) (i32.const 0)))
        (func (export "run") (param $in i32) (result f64)
          (f64.load (local.get $in)) (call_indirect (type $pair) (i32.const 1)) f64.sub)`),
    );
    const { call, instance } = running(bytes);
    expect(call(5)).toBe(3 - 10);
    expect(call(500)).toBe(1 - 2);
    expect(instance.stepsUsed).toBeGreaterThan(8);
    const wrong = runOf('(call_indirect (result f64) (i32.const 1))', '(table 2 2 funcref)');
    expect(thrownKind(() => running(wrong).call(0))).toBe('policy_runtime');
  });

  test('shows no NaN but the canonical one', () => {
    const strange = '(f64.reinterpret_i64 (i64.const 0xfff4000000000001))';
    const bits = (body: string) =>
      running(runOf(`(f64.convert_i64_u (i64.shr_u ${body} (i64.const 32)))`)).call(0);
    const canonical = 0x7ff80000;
    expect(bits(`(i64.reinterpret_f64 ${strange})`)).toBe(canonical);
    expect(bits(`(i64.reinterpret_f64 (f64.neg ${strange}))`)).toBe(canonical);
    expect(bits(`(i64.reinterpret_f64 (f64.div (f64.const 0) (f64.const 0)))`)).toBe(canonical);
    const stored = `(block (result i64) (f64.store (i32.const 0) ${strange}) (i64.load (i32.const 0)))`;
    expect(bits(stored)).toBe(canonical);
    const single = '(f32.reinterpret_i32 (i32.const 0xffa00001))';
    expect(bits(`(i64.shl (i64.extend_i32_u (i32.reinterpret_f32 ${single})) (i64.const 32))`)).toBe(
      0x7fc00000,
    );
    const signed = (y: string) => running(runOf(`(f64.copysign (f64.const 3) ${y})`)).call(0);
    expect(signed(strange)).toBe(3);
    expect(signed('(f64.const -0)')).toBe(-3);
    expect(
      running(runOf('(f64.div (f64.const 1) (f64.copysign (f64.const 0) (f64.const -2)))')).call(0),
    ).toBe(-Infinity);
  });
});
