import { describe, expect, it } from 'vitest';
import { tableMemory } from '../../../src/backends/host/hostArena.ts';
import { KVManager } from '../../../src/runtime/index.ts';

const config = { unitBytes: [1], hbm: { capacityBytes: 400_000 } };
const keys = Uint32Array.from({ length: 4 * 300 }, (_, i) => Math.imul(i + 1, 0x9e37_79b1));

/** Takes 300 blocks, seals them, and says how many a lookup finds. */
function cached(manager: KVManager): number {
  const sequence = manager.open(keys, 300, 0);
  manager.allocate(sequence, 0, 300, 0);
  manager.seal(sequence, 0, 300, keys, 0, 16, 0);
  for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) manager.complete(job, 0, 0);
  manager.release(sequence, 0);
  manager.checkIntegrity();
  return manager.matchLength(keys, 300);
}

describe('memory for tables', () => {
  it('is zeroed, as much as asked for, and writable from end to end', async () => {
    const memory = await tableMemory();
    for (const bytes of [4, 4096, 2 ** 21 - 4, 2 ** 21, 5_000_004]) {
      const words = new Uint32Array(memory(bytes), 0, bytes / 4);
      expect(words.every((word) => word === 0)).toBe(true);
      words.fill(0xffff_ffff);
      expect(words[0] & words.at(-1)!).toBe(-1);
    }
  });

  it('changes nothing that a manager does', async () => {
    const asked: number[] = [];
    const memory = await tableMemory();
    const manager = new KVManager({
      ...config,
      tableMemory(bytes) {
        asked.push(bytes);
        return memory(bytes);
      },
    });
    expect(Math.max(...asked)).toBeGreaterThan(2 ** 21);
    expect(cached(manager)).toBe(300);
    expect(cached(new KVManager(config))).toBe(300);
  });

  it('that is shorter than asked for is refused', () => {
    const tableMemoryOfNothing = (): ArrayBuffer => new ArrayBuffer(8);
    expect(() => new KVManager({ ...config, tableMemory: tableMemoryOfNothing })).toThrow(/as much memory/);
  });
});
