import { availableParallelism } from 'node:os';
import { describe, expect, it } from 'vitest';
import { CoreDistance } from '../../../src/cli/bench/cores/coreDistance.ts';
import { UsualDistance } from '../../../src/cli/bench/cores/usualDistance.ts';

describe('the distance of the cores', () => {
  it.skipIf(availableParallelism() < 2)('is what a line takes to another core and back', async () => {
    await using cores = new CoreDistance();
    const seen = Array.from({ length: 100 }, () => cores.lookNs()).filter((ns) => ns > 0);
    expect(seen.length).toBeGreaterThan(0);
    for (const ns of seen) expect(ns).toBeLessThan(2e6);
  });

  it('is 0 once the other thread is gone, and no look waits for it', async () => {
    const cores = new CoreDistance();
    await cores[Symbol.asyncDispose]();
    expect(cores.lookNs()).toBe(0);
  });

  it('is usual near what most looks lately have said, and wherever a look says nothing', () => {
    const looks = [100, 100, 120, 320, 66, 0, 90, 320, 320, 320, 320, 320, 110];
    const usual = new UsualDistance(() => looks.shift()!);
    const said = Array.from({ length: looks.length }, () => usual.asUsual());
    expect(said).toEqual([
      true,
      true,
      true,
      false,
      false,
      true,
      true,
      false,
      false,
      false, // of nine looks four say so
      true, // and now of ten five
      true,
      false,
    ]);
  });
});
