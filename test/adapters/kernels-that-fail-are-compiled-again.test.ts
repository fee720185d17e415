/** Kernels that a device did not compile once are asked for again: the cache does not keep the failure. */

import { expect, test, vi } from 'vitest';
import { DeviceCopies } from '../../src/adapters/transformers/deviceCopies.ts';
import { PrefixCache } from '../../src/adapters/transformers/index.ts';
import { kvLayout } from '../../src/index.ts';
import { openRuntimeOf } from './decoders.ts';

test('each restore tries until one succeeds', async () => {
  const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 16, dtype: 'f32', blockTokens: 16 });
  await using runtime = await openRuntimeOf(layout, { hbmBytes: 16 * layout.blockBytes });
  const shape = { session: { config: { device: 'webgpu' } }, tensorType: 'float32', kvHeads: 1, headDim: 16 };
  const env = { backends: { onnx: { webgpu: { device: runtime.device } } } };
  const cache = new PrefixCache({
    runtime,
    ownsRuntime: false,
    shape: shape as never,
    engine: { env } as never,
    identity: new Uint8Array(32),
    regimes: undefined,
    tenant: 'a',
    extras: undefined,
  });
  const scope = { ...cache.scopeOf({}), mostTokens: Number.POSITIVE_INFINITY };
  const ids = Uint32Array.from({ length: 33 }, (_, i) => i);
  const { tenant, extras } = scope;
  const sequence = await runtime.begin(ids, { tenant, extras });
  for (const { index } of runtime.openBlocks(sequence)) {
    runtime.writeBlock(sequence, index, (bytes) => bytes.fill(index));
  }
  await runtime.seal(sequence);
  runtime.release(sequence);

  const open = vi.spyOn(DeviceCopies, 'open');
  for (const reason of ['once', 'twice']) {
    open.mockRejectedValueOnce(new Error(reason));
    await expect(cache.fill({} as never, ids, scope)).rejects.toThrow(reason);
  }
  open.mockRestore();
  const update = vi.fn();
  // past the kernels, the first thing that this engine lacks
  await expect(cache.fill({ update } as never, ids, scope)).rejects.toThrow('Tensor');
});
