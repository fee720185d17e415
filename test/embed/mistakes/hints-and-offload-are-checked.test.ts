/** Wishes about keeping and offloading: what is wrong is one error with its field, before anything is done. */

import { expect, it } from 'vitest';
import type { RetentionHint } from '../../../src/index.ts';
import { TierKVError } from '../../../src/runtime/index.ts';
import { blocks, openRuntime, prompt, tenant, write } from '../liveRuntime.ts';

const wrong: readonly (readonly [hint: RetentionHint, field: string])[] = [
  [{ keepMs: -1 }, 'retention.keepMs'],
  [{ keepMs: Number.NaN }, 'retention.keepMs'],
  [{ priority: 101 }, 'retention.priority'],
  [{ priority: -0.5 }, 'retention.priority'],
];

it('a hint in the past or out of range is refused, and the sequence is as it was', async () => {
  await using kv = await openRuntime({});
  for (const [retention, field] of wrong) {
    const begun = kv.begin(prompt(1), { tenant, retention });
    await expect(begun).rejects.toThrow(expect.objectContaining({ field }));
    expect(kv.manager.inspect.usage(0).heldBytes).toBe(0);
  }
  const sequence = await kv.begin(prompt(1), { tenant, retention: { priority: 100, keepMs: 60_000 } });
  write(kv, sequence, 1);
  await kv.seal(sequence);
  for (const [retention, field] of wrong) {
    expect(() => kv.release(sequence, { retention })).toThrow(expect.objectContaining({ field }));
    expect(sequence.ended).toBe(false);
  }
  kv.release(sequence, { retention: { keepMs: 1_000 } });
  expect(sequence.ended).toBe(true);
  kv.manager.checkIntegrity();
});

it('an offload policy that is not known, or given twice, is refused by its field', async () => {
  const ddrBytes = blocks(20);
  const offload = { hbm: { policy: 'egaer' } };
  await expect(openRuntime({ ddrBytes, offload })).rejects.toThrow(/offload.hbm.policy .*Did you mean eager/);
  const both = openRuntime({ ddrBytes, offload: { hbm: { policy: 'eager' } }, offloadThreshold: 0.5 });
  await expect(both).rejects.toBeInstanceOf(TierKVError);
});
