/** Folders of measured runs become rows of the accuracy page; what cannot be judged is named, and the others go on. */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { latencyDataFile, readText } from '../../../src/sim/build/dataFiles.ts';
import {
  accuracyPage,
  capacityRows,
  parseEngineStart,
  runsOf,
  servedBy,
  stepRows,
} from '../../../tools/accuracyPage.ts';
import { loggedFigures, servedTokens } from '../../../tools/publicFigures.ts';

let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), 'tierkv-accuracy-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true }));
});
const put = (name: string, text: string): void => {
  fs.mkdirSync(join(folder, name, '..'), { recursive: true });
  fs.writeFileSync(join(folder, name), text);
};
const row = JSON.stringify({
  input_toks: 100,
  output_toks: 5,
  queued_ts: 1,
  first_token_ts: 1.1,
  last_token_ts: 1.2,
});

it("reads vLLM's arguments and LLMServingSim's configuration, and tells what it assumed", () => {
  const kwargs = {
    tensor_parallel_size: 2,
    data_parallel_size: 1,
    max_num_seqs: 64,
    max_num_batched_tokens: 4096,
  };
  put('a/meta.json', JSON.stringify({ model: 'meta-llama/Llama-3.1-8B', engine_kwargs: kwargs }));
  put(
    'a/config.json',
    JSON.stringify({ nodes: [{ instances: [{ hardware: 'RTXPRO6000', npu_mem: { mem_util: 0.8 } }] }] }),
  );
  expect(servedBy(join(folder, 'a'))).toEqual({
    // the simulator's own share says nothing of the engine's
    assumed: ['gpu_memory_utilization 0.9'],
    by: {
      gpu: 'RTXPRO6000',
      model: 'meta-llama/Llama-3.1-8B',
      tp: 2,
      dp: 1,
      maxSequences: 64,
      maxBatchedTokens: 4096,
      memoryUtilization: 0.9,
      blockTokens: 16,
    },
  });
  put(
    'b/config.json',
    JSON.stringify({ nodes: [{ instances: [{ model_name: 'qwen3-8b', hardware: 'RTX4090', tp_size: 1 }] }] }),
  );
  expect(servedBy(join(folder, 'b')).assumed).toEqual(['max_num_seqs 128', 'max_num_batched_tokens 2048']);
  // newer files say more of a GPU than its name, and others another thing
  put('c/meta.json', JSON.stringify({ gpu: { name: 'H100', count: 2 }, model: { name: 'qwen3-8b' } }));
  expect(servedBy(join(folder, 'c')).by).toMatchObject({ gpu: 'H100', model: 'qwen3-8b' });
  for (const gpu of [{ kind: 'H100' }, ['H100'], 7]) {
    put('c/meta.json', JSON.stringify({ gpu, model: 'qwen3-8b' }));
    expect(() => servedBy(join(folder, 'c'))).toThrow(
      expect.objectContaining({ code: 'TKV_INPUT', field: 'gpu' }),
    );
  }
});

it('takes no setting for its default that is there and cannot be read', () => {
  const settings = 'tensor_parallel_size data_parallel_size max_num_seqs max_num_batched_tokens block_size';
  for (const field of [...settings.split(' '), 'num_gpu_blocks', 'gpu_memory_utilization']) {
    for (const value of ['2', 'two', -1, 1.5, {}, true]) {
      const engine_kwargs = { [field]: value };
      put('d/meta.json', JSON.stringify({ gpu: 'H100', model: 'qwen3-8b', engine_kwargs }));
      const read = (): unknown => servedBy(join(folder, 'd'));
      expect(read, `${field} ${JSON.stringify(value)}`).toThrow(
        expect.objectContaining({ code: 'TKV_INPUT', field }),
      );
    }
    for (const value of [null, 'None']) {
      put(
        'd/meta.json',
        JSON.stringify({ gpu: 'H100', model: 'qwen3-8b', engine_kwargs: { [field]: value } }),
      );
      expect(servedBy(join(folder, 'd')).by, field).toMatchObject({ tp: 1, blockTokens: 16 });
    }
  }
});

it("reads what vLLM's log says of its arguments and its blocks, and judges the capacity by it", () => {
  const log = [
    "INFO 11-20 10:00:00 [utils.py:253] non-default args: {'model_tag': 'x', 'model': 'meta-llama/Llama-2-70b-hf', 'tensor_parallel_size': 4, 'max_num_seqs': 256, 'max_num_batched_tokens': 2048, 'gpu_memory_utilization': 0.9, 'enable_prefix_caching': True}",
    'INFO 11-20 10:00:09 [kv_cache_utils.py:868] GPU KV cache size: 501,696 tokens',
    'INFO 11-20 10:00:09 [kv_cache_utils.py:872] Maximum concurrency for 4,096 tokens per request: 122.48x',
  ].join('\r\n');
  expect(parseEngineStart(log)).toMatchObject({ kvTokens: 501_696, args: { tensor_parallel_size: 4 } });
  put('logged/meta.json', '{"gpu": "H100"}');
  put('logged/engine.log', log);
  put('logged/requests.jsonl', `${row}\n${row}\n`);
  const { by, assumed } = servedBy(join(folder, 'logged'));
  // vLLM logged 31,356 blocks of this engine (data/latency/vllm-memory.csv)
  expect(by).toMatchObject({
    model: 'meta-llama/Llama-2-70b-hf',
    tp: 4,
    maxSequences: 256,
    kvBlocks: 31_356,
  });
  expect(assumed).toEqual([]);
  const { capacity, rows, skipped } = runsOf([folder]);
  expect([rows.length, skipped]).toEqual([1, []]);
  expect(capacity).toHaveLength(1);
  expect(Math.abs(capacity[0].errorPercent)).toBeLessThan(5);
  // V0 and later spellings
  expect(parseEngineStart('# GPU blocks: 1,381, # CPU blocks: 512').gpuBlocks).toBe(1381);
  expect(
    parseEngineStart(
      "Initializing a V1 LLM engine (v0.19.0) with config: model='a/b', tensor_parallel_size=2",
    ).args,
  ).toEqual({
    model: 'a/b',
    tensor_parallel_size: 2,
  });
});

it('predicts an engine of 2023 below what it took, and prompts on two GPUs near it', () => {
  const rows = stepRows(readText(latencyDataFile('splitwise-steps.csv')));
  expect(rows.map(({ engine }) => engine)).toHaveLength(6);
  for (const { engine, tokenPercent, promptPercent } of rows) {
    expect([engine, tokenPercent < 0]).toEqual([engine, true]);
    if (engine.includes(' 2 x ')) expect([engine, Math.abs(promptPercent) < 25]).toEqual([engine, true]);
  }
});

it("takes a log's tokens of a hybrid model over all its groups", () => {
  put(
    'meta.json',
    '{"gpu": "H100", "model": "gpt-oss-120b", "max_num_seqs": 256, "max_num_batched_tokens": 2048}',
  );
  put('vllm.log', 'GPU KV cache size: 78,384 tokens');
  put('requests.jsonl', `${row}\n`);
  // two groups of 18 layers share the pool (and its 9,798 blocks)
  expect(servedBy(folder).by.kvBlocks).toBe((2 * 78_384) / 16);
});

it('judges one run with what is beside it or in vllm/, and names one that it cannot judge', () => {
  const config = { nodes: [{ instances: [{ model_name: 'llama-3.1-8b-instruct', hardware: 'RTX4090' }] }] };
  put('good/config.json', JSON.stringify(config));
  put('good/vllm/requests.jsonl', `${row}\n${row}\n`);
  put('bad/requests.jsonl', `${row}\n`);
  const { rows, skipped } = runsOf([folder]);
  expect(rows).toHaveLength(1);
  expect(rows[0]).toMatchObject({
    judgedOn: 'all 2 requests',
    calibratedOn: "H100's coefficients, nothing of this run",
  });
  expect(rows[0].values.map(({ what, point }) => `${what} ${point}`)).toContain('E2E p99');
  expect(skipped).toHaveLength(1);
  expect(skipped[0].why).toMatch(/bad: neither meta\.json nor config\.json says the model\. Add "model"$/);
  const page = accuracyPage({
    served: '## Served points of vLLM',
    rows,
    skipped,
    steps: stepRows(readText(latencyDataFile('splitwise-steps.csv'))),
    capacity: capacityRows(readText(latencyDataFile('vllm-memory.csv'))),
    logged: loggedFigures(readText(latencyDataFile('vllm-logs.csv'))),
    tokens: servedTokens(readText(latencyDataFile('served-tokens.csv'))),
  });
  expect(page).toContain('## Left out');
  expect(page).toMatch(
    /\| llama-2-70b-hf on 4 x H100, .* \| 31356 blocks \| 31\d{3} blocks \| [+−]0\.\d \| judged \|/,
  );
});
