/** Folders of measured runs become rows of the accuracy page; what cannot be judged is named, and the others go on. */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { latencyDataFile, readText } from '../../../src/files/dataFiles.ts';
import { accuracyPage, capacityRows, runsOf, servedBy } from '../../../src/fitting/accuracyPage.ts';

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
    assumed: [],
    by: {
      gpu: 'RTXPRO6000',
      model: 'meta-llama/Llama-3.1-8B',
      tp: 2,
      dp: 1,
      maxNumSeqs: 64,
      maxNumBatchedTokens: 4096,
      gpuMemoryUtilization: 0.8,
      blockSize: 16,
    },
  });
  put(
    'b/config.json',
    JSON.stringify({ nodes: [{ instances: [{ model_name: 'qwen3-8b', hardware: 'RTX4090', tp_size: 1 }] }] }),
  );
  expect(servedBy(join(folder, 'b')).assumed).toEqual(['max_num_seqs 128', 'max_num_batched_tokens 2048']);
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
    rows,
    skipped,
    capacity: capacityRows(readText(latencyDataFile('vllm-memory.csv'))),
  });
  expect(page).toContain('## Left out');
  expect(page).toMatch(
    /\| llama-2-70b-hf on 4 x H100, .* \| 31356 blocks \| 31\d{3} blocks \| [+−]0\.\d \| judged \|/,
  );
});
