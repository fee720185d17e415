/** A slice of the conversations over transformers.js: `npm run campaign -- transformers` holds more of them. */

import * as transformers from '@huggingface/transformers';
import { afterAll, expect, test } from 'vitest';
import { layoutOf } from '../../src/adapters/transformers/index.ts';
import { sized } from '../sized.ts';
import { runConversations } from './conversations.ts';
import { loadDecoder, removeDirectories, restartedRuntimes } from './decoders.ts';

afterAll(removeDirectories);

const conversations = sized(24, 40);
const seed = Number(process.env.TIERKV_SEED ?? 1);

test.each([
  ['f32', {}],
  ['f16', { kvDtype: 'f16' }],
] as const)('answers and bits are those of the model alone, over restarts (%s)', async (_, shape) => {
  const { model, directory } = await loadDecoder(shape);
  const runtimes = restartedRuntimes(layoutOf(model));
  const report = await runConversations({
    model,
    weights: directory,
    open: runtimes,
    conversations,
    seed,
    restartEvery: 8,
    sharedTokens: 200,
  });
  const { restarts, wrongAnswers, wrongBlocks, foreignTokens, uncached } = report;
  expect({
    seed,
    conversations: report.conversations,
    restarts,
    wrongAnswers,
    wrongBlocks,
    foreignTokens,
    uncached,
  }).toEqual({
    seed,
    conversations,
    restarts: conversations / 8,
    wrongAnswers: 0,
    wrongBlocks: 0,
    foreignTokens: 0,
    uncached: [],
  });
  expect(report.comparedBlocks).toBeGreaterThan(sized(30, 50));
  expect(report.tokens.restored).toBeGreaterThan(sized(600, 1000));
  expect(report.tokens.live).toBeGreaterThan(sized(60, 100));
  const [, ddr, nvme] = report.byTier;
  expect(ddr + nvme).toBeGreaterThan(sized(6, 10)); // blocks came back from below
});

/** A control: these must be seen. */
test('one wrong bit of a restored tensor is seen in bits and in answers', async () => {
  const { model, directory } = await loadDecoder();
  class Spoiled extends transformers.Tensor {
    constructor(type: 'float32', data: Float32Array, dims: number[]) {
      super(type, data, dims);
      // the exponent of the first element
      if (type === 'float32' && data.length > 0) new Uint8Array(data.buffer)[3] ^= 0x40;
    }
  }
  const report = await runConversations({
    model,
    weights: directory,
    open: restartedRuntimes(layoutOf(model)),
    transformers: { ...transformers, Tensor: Spoiled } as never,
    conversations: 20,
    seed,
    restartEvery: 10,
    sharedTokens: 200,
  });
  expect(report.wrongBlocks).toBeGreaterThan(0);
  expect(report.wrongAnswers).toBeGreaterThan(0);
});
