/**
 * Opt-in, with a model that `npm run fetch-model -- DIR` wrote: `TIERKV_MODEL=DIR`. The kernels beside the
 * float64 decoder, over a real checkpoint with its tokenizer.
 */

import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../../../examples/server/engine/checkpoint/index.ts';
import { Decoder, referenceLogits } from '../../../../examples/server/engine/model/index.ts';
import { TextTokenizer } from '../../../../examples/server/engine/text/index.ts';
import { openDevice } from '../../../../src/backends/webgpu/adapter.ts';
import { kvLayout } from '../../../../src/index.ts';

const directory = process.env.TIERKV_MODEL;
if (directory === undefined) {
  console.log('SKIPPED: the logits of a real model (TIERKV_MODEL names no directory; npm run fetch-model)');
}

describe.skipIf(directory === undefined)('a real model', () => {
  it('continues "The capital of France is" with " Paris", and its logits are those of float64', async () => {
    const checkpoint = openCheckpoint(directory as string); // the suite is skipped without one
    const { layers, kvHeads, headDim, vocabulary } = checkpoint.config;
    const tokenizer = new TextTokenizer(directory as string, vocabulary);
    const tokens = tokenizer.encode('The capital of France is', false);
    const layout = kvLayout({ layers, kvHeads, headDim, dtype: 'f32', blockTokens: 16 });
    await using live = await openDevice();
    const slab = live.device.createBuffer({ size: layout.blockBytes, usage: 0x80 });
    const limits = { rows: 16, samples: 16, entries: 1, contextTokens: 16 };
    const decoder = await Decoder.open(live, checkpoint, layout, [slab], limits);
    const logits = await decoder.run({
      tokens: Uint32Array.from(tokens),
      rows: Uint32Array.from(tokens.flatMap((_, i) => [i, 0, 0, 0])),
      entries: Uint32Array.of(0, 0),
      samples: Uint32Array.from(tokens, (_, i) => i),
    });
    let worst = 0;
    referenceLogits(checkpoint, tokens).forEach((expected, i) => {
      const largest = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      expected.forEach((value, token) => {
        worst = Math.max(worst, Math.abs(value - logits[i * vocabulary + token]) / largest);
      });
    });
    console.log(`largest difference of a logit: ${worst.toExponential(2)} of the largest logit`);
    expect(worst).toBeLessThan(1e-4);
    const last = logits.subarray((tokens.length - 1) * vocabulary);
    const best = last.reduce((most, value, token) => (value > last[most] ? token : most), 0);
    expect(tokenizer.decode([best])).toBe(' Paris');
    checkpoint.tensors.close();
  }, 600_000);
});
