/** A real model, by a path: `TIERKV_TRANSFORMERS_MODEL=DIRECTORY TIERKV_TRANSFORMERS_DTYPE=q4 npx vitest run test/adapters`. */

import { AutoModelForCausalLM, AutoTokenizer, env } from '@huggingface/transformers';
import { afterAll, expect, test } from 'vitest';
import { layoutOf, withPrefixCache } from '../../src/adapters/transformers/index.ts';
import { generated, removeDirectories, restartedRuntimes } from './decoders.ts';

afterAll(removeDirectories);

const directory = process.env.TIERKV_TRANSFORMERS_MODEL;
if (directory === undefined) {
  console.warn('SKIPPED: no real model of transformers.js is named (TIERKV_TRANSFORMERS_MODEL=DIRECTORY)');
}

const text =
  'A cache that keeps the keys and values of a long text answers the next question about it sooner. '.repeat(
    8,
  );

test.skipIf(directory === undefined)('a real model says the same from disk', async () => {
  env.allowRemoteModels = false;
  env.localModelPath = '';
  const dtype = (process.env.TIERKV_TRANSFORMERS_DTYPE ?? 'fp32') as 'fp32';
  const model = await AutoModelForCausalLM.from_pretrained(directory!, { dtype });
  const tokenizer = await AutoTokenizer.from_pretrained(directory!);
  const ids = Array.from(tokenizer(text).input_ids.data as BigInt64Array, Number);
  const open = restartedRuntimes(layoutOf(model), Math.ceil(ids.length / 16) + 24);
  const plain = await generated(model, ids);
  for (const restored of [false, true]) {
    await using runtime = await open();
    const cached = await withPrefixCache(model, { weights: directory!, tenant: 'a', runtime });
    expect(await generated(cached, ids)).toEqual(plain);
    expect(cached.prefixCache.counters.restoredTokens > 0).toBe(restored);
    await runtime.save();
  }
});
