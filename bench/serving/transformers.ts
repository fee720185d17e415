/**
 * Time to first token of a transformers.js model, with its prefix computed, restored from host memory, and restored from
 * files, all in one run: `node bench/serving/transformers.ts --rounds 5`. Each round takes all ways in turn, so that a
 * machine that is slow for a while is slow for all of them. A prompt has `tokens` tokens and eight more.
 *
 * The files lie in a temporary directory and are read by direct I/O, past the page cache. What is not found is measured
 * in processor time, which a busy machine changes less: until the first token, and until `generate` has ended, with 16
 * tokens generated and all blocks saved. Threads of onnxruntime that wait spin, so both vary by more than the cache costs on a
 * machine in use: the cache's own work, a lookup that finds nothing and the copy of all blocks, is measured apart too.
 *
 * Host memory is the top tier. With `--device software` it is the second one below the software device.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { AutoModelForCausalLM, DynamicCache, env, Tensor } from '@huggingface/transformers';
import { largerDecoder, makeDecoder } from '../../examples/tinyDecoder/make.ts';
import { layoutOf, type PrefixTurn, withPrefixCache } from '../../src/adapters/transformers/index.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    tokens: { type: 'string', default: '256,512,1024,2048,4096' },
    model: { type: 'string' },
    dtype: { type: 'string', default: 'fp32' },
    device: { type: 'string', default: 'none' },
    json: { type: 'boolean', default: false },
  },
});
const rounds = Number(values.rounds);
const lengths = values.tokens.split(',').map(Number);
/** Tokens behind the prefix, which every way computes. */
const MORE = 8;
/** Tokens that are generated where whole calls are compared. */
const ANSWER = 16;

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-bench-'));
const ways = ['computed', 'not found', 'DDR', 'NVMe'] as const;
type Way = (typeof ways)[number];

try {
  const directory = values.model === undefined ? path.join(scratch, 'model') : path.resolve(values.model);
  if (values.model === undefined) makeDecoder(directory, largerDecoder);
  env.allowRemoteModels = false;
  env.localModelPath = '';
  const model = await AutoModelForCausalLM.from_pretrained(directory, { dtype: values.dtype as 'fp32' });
  const { blockBytes, tokenBytes } = layoutOf(model);
  const blocks = path.join(scratch, 'blocks');
  fs.mkdirSync(blocks);
  let turn: PrefixTurn | undefined;
  const open = (): ReturnType<typeof withPrefixCache<typeof model>> =>
    withPrefixCache(model, {
      weights: directory,
      tenant: 'bench',
      secretKey: new Uint8Array(32).fill(7),
      ...(values.device === 'software' ? ({ hbmBytes: 700 * blockBytes, adapter: 'software' } as const) : {}),
      ddrBytes: 2048 * blockBytes,
      migration: false,
      nvme: { dir: blocks, bytes: 4096 * blockBytes },
      liveCaches: 0,
      report: (each) => {
        turn = each;
      },
    });

  let seed = 1;
  const randomPrompt = (tokens: number): Tensor => {
    const ids = BigInt64Array.from({ length: tokens }, () => {
      seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
      return BigInt(3 + (seed % 500));
    });
    return new Tensor('int64', ids, [1, tokens]);
  };

  /** Milliseconds until the first token, and of processor time until then and until the end. */
  async function timed(
    through: { generate(options: never): Promise<unknown> },
    inputs: Tensor,
    answer: number,
  ): Promise<{ readonly firstMs: number; readonly firstCpuMs: number; readonly endCpuMs: number }> {
    const beganMs = performance.now();
    const began = process.cpuUsage();
    const cpuMs = (): number => {
      const { user, system } = process.cpuUsage(began);
      return (user + system) / 1000;
    };
    let puts = 0;
    let firstMs = 0;
    let firstCpuMs = 0;
    // the prompt is put first
    const put = (): void => {
      if (++puts !== 2) return;
      firstMs = performance.now() - beganMs;
      firstCpuMs = cpuMs();
    };
    const options = { inputs, max_new_tokens: answer, eos_token_id: null, streamer: { put, end: () => {} } };
    await through.generate(options as never);
    return { firstMs, firstCpuMs, endCpuMs: cpuMs() };
  }

  const first = new Map<string, number[]>();
  const firstCpu = new Map<string, number[]>();
  const wholeCpu = new Map<string, number[]>();
  const ownCpu = new Map<string, number[]>();
  const note = (times: Map<string, number[]>, way: Way, tokens: number, ms: number): void => {
    const name = `${way} ${tokens}`;
    times.set(name, [...(times.get(name) ?? []), ms]);
  };
  const requireTurn = (tokens: number): void => {
    if (turn?.cachedTokens === tokens) return;
    throw new Error(
      `${turn?.cachedTokens} tokens were restored, and ${tokens} were expected: ${turn?.uncached}`,
    );
  };

  await timed(model, randomPrompt(64), 2); // the first run of a session allocates
  for (let round = 0; round < rounds; round++) {
    const prompts = new Map(lengths.map((tokens) => [tokens, randomPrompt(tokens + MORE)]));
    let cached = await open();
    for (const [tokens, prompt] of prompts) {
      // both ways take turns at going first
      const both: readonly Way[] = round % 2 === 0 ? ['computed', 'not found'] : ['not found', 'computed'];
      for (const way of both) {
        const times = await timed(way === 'computed' ? model : cached, prompt, ANSWER);
        note(first, way, tokens, times.firstMs);
        note(firstCpu, way, tokens, times.firstCpuMs);
        note(wholeCpu, way, tokens, times.endCpuMs);
        if (way === 'not found') requireTurn(0);
      }
    }
    const { prefixCache } = cached;
    for (const tokens of lengths) {
      const prompt = randomPrompt(tokens + MORE);
      const past = new DynamicCache();
      const attention_mask = new Tensor('int64', new BigInt64Array(tokens + MORE).fill(1n), prompt.dims);
      const options = { inputs: prompt, attention_mask, past_key_values: past, max_new_tokens: 1 };
      const all = (await model.generate({ ...options, eos_token_id: null })) as Tensor;
      const began = process.cpuUsage();
      const { cachedTokens } = await prefixCache.restore(prompt);
      const { savedBlocks } = await prefixCache.save(all, past);
      const { user, system } = process.cpuUsage(began);
      if (cachedTokens !== 0 || savedBlocks === 0) throw new Error('a new prompt was found');
      note(ownCpu, 'computed', tokens, (user + system) / 1000);
    }
    const { runtime } = prefixCache;
    for (const [tokens, prompt] of prompts) {
      await runtime.idle();
      if (runtime.stores.hasDevice) {
        runtime.manager.evict(0, Math.floor(700 * (15 / 16)), runtime.nowUs());
        await runtime.idle();
      }
      note(first, 'DDR', tokens, (await timed(cached, prompt, 1)).firstMs);
      requireTurn(tokens);
    }
    await cached.prefixCache.close();
    cached = await open();
    for (const [tokens, prompt] of prompts) {
      note(first, 'NVMe', tokens, (await timed(cached, prompt, 1)).firstMs);
      requireTurn(tokens);
    }
    await cached.prefixCache.close();
    fs.rmSync(blocks, { recursive: true });
    fs.mkdirSync(blocks);
    process.stderr.write(`round ${round + 1} of ${rounds}\n`);
  }

  const median = (times: Map<string, number[]>, way: Way, tokens: number): number => {
    const sorted = [...(times.get(`${way} ${tokens}`) ?? [])].sort((a, b) => a - b);
    return sorted[Math.floor(sorted.length / 2)];
  };
  /** The median over rounds of a way's time as a share of the computed one of the same round. */
  const share = (times: Map<string, number[]>, way: Way, tokens: number): number => {
    const base = times.get(`computed ${tokens}`) ?? [];
    const shares = (times.get(`${way} ${tokens}`) ?? []).map((ms, i) => ms / base[i]);
    return shares.sort((a, b) => a - b)[Math.floor(shares.length / 2)];
  };
  const own = (tokens: number): number =>
    median(ownCpu, 'computed', tokens) / median(wholeCpu, 'computed', tokens);
  const percent = (value: number): string => `${(100 * value).toFixed(1)} %`;
  console.log(
    `${(tokenBytes / 1024).toFixed(0)} kB of KV a token, blocks of ${blockBytes} bytes, device ${values.device}, ${rounds} rounds, medians`,
  );
  console.log(
    '| cached tokens | computed | from DDR | from NVMe | not found: processor time to the first token | of the whole call | added by the cache itself |',
  );
  console.log('|---|---|---|---|---|---|---|');
  for (const tokens of lengths) {
    const cells = (['DDR', 'NVMe'] as const).map(
      (way) => `${median(first, way, tokens).toFixed(0)} ms (${percent(share(first, way, tokens))})`,
    );
    const lost = [firstCpu, wholeCpu].map((times) => percent(share(times, 'not found', tokens)));
    lost.push(percent(own(tokens)));
    console.log(
      `| ${tokens} | ${median(first, 'computed', tokens).toFixed(0)} ms | ${[...cells, ...lost].join(' | ')} |`,
    );
  }
  if (values.json)
    console.log(
      JSON.stringify({
        first: [...first],
        firstCpu: [...firstCpu],
        wholeCpu: [...wholeCpu],
        ownCpu: [...ownCpu],
      }),
    );
  await model.dispose();
} finally {
  fs.rmSync(scratch, { recursive: true, force: true });
}
