import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Granularity, unitBox, unitSpec } from '../../../src/runtime/geometry/box.ts';
import { boxBytes, choosePageBytes, kvLayout, poolShape } from '../../../src/runtime/index.ts';
import { SlotPool, slotOffsetBytes } from '../../../src/runtime/tables/slotPool.ts';
import { Random } from '../../fuzz/random.ts';

describe('a pool of one size', () => {
  it('hands out each slot once, then none, and takes them back', () => {
    const pool = new SlotPool(poolShape(5, 64, [64]));
    const slots = Array.from({ length: 5 }, () => pool.take(0));
    expect(new Set(slots).size).toBe(5);
    expect(pool.take(0)).toBe(-1);
    pool.giveBack(slots[2]);
    expect(pool.take(0)).toBe(slots[2]);
    expect(pool.generation[slots[2]]).toBe(2);
    pool.checkIntegrity();
  });
});

describe('a pool of several sizes', () => {
  const sizes = fc.array(fc.integer({ min: 1, max: 64 }), { minLength: 1, maxLength: 4 });

  it('never lets two taken slots share a byte', () => {
    fc.assert(
      fc.property(
        sizes,
        fc.integer({ min: 1, max: 6 }),
        fc.array(fc.nat(), { maxLength: 200 }),
        (slotBytes, pages, steps) => {
          const shape = poolShape(pages, 64, slotBytes);
          const pool = new SlotPool(shape);
          const taken = new Map<number, number>();
          const owner = new Int32Array(shape.capacityBytes).fill(-1);
          for (const step of steps) {
            if (step % 3 === 0 && taken.size > 0) {
              const [slot, sizeClass] = [...taken][step % taken.size];
              const at = slotOffsetBytes(shape, slot, sizeClass);
              owner.fill(-1, at, at + slotBytes[sizeClass]);
              taken.delete(slot);
              pool.giveBack(slot);
            } else {
              const sizeClass = step % slotBytes.length;
              const slot = pool.take(sizeClass);
              if (slot === -1) expect(pool.freeSlots(sizeClass)).toBe(0);
              else {
                const at = slotOffsetBytes(shape, slot, sizeClass);
                const bytes = owner.subarray(at, at + slotBytes[sizeClass]);
                expect(bytes.every((o) => o === -1)).toBe(true);
                bytes.fill(slot);
                taken.set(slot, sizeClass);
              }
            }
            pool.checkIntegrity();
          }
        },
      ),
    );
  });

  it('gives a page back for another size when its last slot returns', () => {
    const pool = new SlotPool(poolShape(1, 64, [64, 16]));
    const small = Array.from({ length: 4 }, () => pool.take(1));
    expect(pool.take(0)).toBe(-1);
    for (const slot of small) pool.giveBack(slot);
    expect(pool.take(0)).toBe(0);
    pool.checkIntegrity();
  });

  const models = [
    { name: '8B', layers: 32, kvHeads: 8, headDim: 128, dtype: 'bf16' as const, blockTokens: 16 },
    { name: 'MQA-like', layers: 28, kvHeads: 2, headDim: 128, dtype: 'bf16' as const, blockTokens: 16 },
    { name: 'odd heads', layers: 10, kvHeads: 5, headDim: 96, dtype: 'f16' as const, blockTokens: 32 },
  ];

  it.each(models)(
    'BLOCK and HEAD units of the $name model mixed use at least 95% before the first refusal',
    ({ name, ...config }) => {
      const layout = kvLayout(config);
      const block = unitSpec(layout, { granularity: Granularity.BLOCK });
      const head = unitSpec(layout, { granularity: Granularity.HEAD, headsPerUnit: 1 });
      const unitBytes = [block, head].map((spec) => boxBytes(layout, unitBox(layout, spec, 0)));
      const { pageBytes } = choosePageBytes(unitBytes);
      for (let seed = 1; seed <= 30; seed++) {
        const random = new Random(seed);
        const shape = poolShape(Math.ceil((200 * unitBytes[0]) / pageBytes), pageBytes, unitBytes);
        const pool = new SlotPool(shape);
        const held: [slot: number, sizeClass: number][] = [];
        let usedBytes = 0;
        for (;;) {
          if (held.length > 0 && random.chance(0.35)) {
            const [[slot, sizeClass]] = held.splice(random.below(held.length), 1) as [[number, number]];
            pool.giveBack(slot);
            usedBytes -= unitBytes[sizeClass];
            continue;
          }
          const sizeClass = random.chance(0.3) ? 0 : 1;
          const slot = pool.take(sizeClass);
          if (slot === -1) break;
          held.push([slot, sizeClass]);
          usedBytes += unitBytes[sizeClass];
        }
        const share = usedBytes / shape.capacityBytes;
        expect(share, `seed ${seed}, model ${name}`).toBeGreaterThanOrEqual(0.95);
        pool.checkIntegrity();
      }
    },
  );
});
