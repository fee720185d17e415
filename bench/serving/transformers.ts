/**
 * What the prefix cache of a transformers.js model gives and costs, all in one run: `node bench/serving/transformers.ts`.
 *
 * Gives: time to first token with the prefix computed, restored from host memory, and restored from files, which lie in a
 * temporary directory and are read by direct I/O, past the page cache. A prompt has `tokens` tokens and eight more.
 *
 * Costs: calls of which nothing is found, 16 tokens generated and all blocks saved, in pairs beside the same call without a
 * cache. Pairs take turns at which call is first (ABBA), so that a machine that is slow for a while is slow for both. Of each
 * pair the ratio is taken, and printed are the median over the pairs and half the width of its interval of 95 %: below it no
 * difference can be seen. The processor time of a call counts until its blocks lie in files; wall time is what the caller
 * waits. Both calls use one session of onnxruntime with `--threads` threads, which sleep while they wait: threads that spin
 * use processor time by chance. `--spin` lets them spin. With `--control` neither call has a cache: what then differs from
 * 100 % is the noise of this machine.
 *
 * The last column is the processor time that passes while the cache works. It has more than the cache's own work: 16 generated
 * tokens make V8 collect the engine's tensors once or twice, in whatever JavaScript runs then, and after some collections V8
 * has thrown away the code that did not run meanwhile (`node --no-flush-bytecode` keeps it).
 *
 * Host memory is the top tier. With `--device software` it is the second one below the software device. Four rounds take
 * about five minutes on two cores; `--rounds` and `--tokens` change that.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { AutoModelForCausalLM, env, Tensor } from '@huggingface/transformers';
import { largerDecoder, makeDecoder } from '../../examples/tinyDecoder/make.ts';
import { layoutOf, type PrefixTurn, withPrefixCache } from '../../src/adapters/transformers/index.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '4' },
    tokens: { type: 'string', default: '256,512,1024,2048,4096' },
    threads: { type: 'string', default: String(os.availableParallelism()) },
    spin: { type: 'boolean', default: false },
    control: { type: 'boolean', default: false },
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
/** Prompt tokens of a round at each length, at least two prompts: short calls vary more, and more of them fit the time. */
const ROUND_TOKENS = 4096;

/** One call of `generate`. */
interface Call {
  readonly firstMs: number;
  readonly wholeMs: number;
  readonly processorMs: number;
  /** What the cache itself did in it: looking up and saving. */
  readonly ownMs: number;
  readonly ownProcessorMs: number;
}

/** The same prompt with the cache, which does not find it, and without. */
interface Pair {
  readonly computed: Call;
  readonly notFound: Call;
}

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-bench-'));

try {
  const directory = values.model === undefined ? path.join(scratch, 'model') : path.resolve(values.model);
  if (values.model === undefined) makeDecoder(directory, largerDecoder);
  env.allowRemoteModels = false;
  env.localModelPath = '';
  const model = await AutoModelForCausalLM.from_pretrained(directory, {
    dtype: values.dtype as 'fp32',
    session_options: {
      intraOpNumThreads: Number(values.threads),
      interOpNumThreads: 1,
      ...(values.spin ? {} : { extra: { session: { intra_op: { allow_spinning: '0' } } } }),
    },
  });
  const { blockBytes, tokenBytes } = layoutOf(model);
  const blocks = path.join(scratch, 'blocks');
  let turn: PrefixTurn | undefined;
  const own = { ms: 0, processorMs: 0 };

  /** Measures what the call does, though other threads work as well. */
  async function counted<T>(act: () => Promise<T>): Promise<T> {
    const began = performance.now();
    const used = process.cpuUsage();
    try {
      return await act();
    } finally {
      own.ms += performance.now() - began;
      own.processorMs += processorMs(used);
    }
  }

  async function open(): Promise<Awaited<ReturnType<typeof withPrefixCache<typeof model>>>> {
    fs.mkdirSync(blocks, { recursive: true });
    const cached = await withPrefixCache(model, {
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
    const { prefixCache } = cached;
    const [fill, store] = [prefixCache.fill.bind(prefixCache), prefixCache.store.bind(prefixCache)];
    prefixCache.fill = (...of) => counted(() => fill(...of));
    prefixCache.store = (...of) => counted(() => store(...of));
    return cached;
  }

  let seed = 1;
  const randomPrompt = (tokens: number): Tensor => {
    const ids = BigInt64Array.from({ length: tokens }, () => {
      seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
      return BigInt(3 + (seed % 500));
    });
    return new Tensor('int64', ids, [1, tokens]);
  };

  /** @param settled ends what the call has left behind */
  async function timed(
    through: { generate(options: never): Promise<unknown> },
    inputs: Tensor,
    answer: number,
    settled: () => Promise<unknown> = async () => {},
  ): Promise<Call> {
    Object.assign(own, { ms: 0, processorMs: 0 });
    const began = performance.now();
    const used = process.cpuUsage();
    let puts = 0;
    let firstMs = 0;
    // the prompt is put first
    const put = (): void => {
      if (++puts === 2) firstMs = performance.now() - began;
    };
    const attention_mask = new Tensor('int64', new BigInt64Array(inputs.dims[1]).fill(1n), inputs.dims);
    const options = { inputs, attention_mask, max_new_tokens: answer, eos_token_id: null };
    await through.generate({ ...options, streamer: { put, end: () => {} } } as never);
    const wholeMs = performance.now() - began;
    await settled();
    return {
      firstMs,
      wholeMs,
      processorMs: processorMs(used),
      ownMs: own.ms,
      ownProcessorMs: own.processorMs,
    };
  }

  const requireTurn = (tokens: number): void => {
    if (turn?.cachedTokens === tokens) return;
    throw new Error(
      `${turn?.cachedTokens} tokens were restored, and ${tokens} were expected: ${turn?.uncached}`,
    );
  };

  const pairs = new Map<number, Pair[]>(lengths.map((tokens) => [tokens, []]));
  /** Milliseconds to the first token, by length and round. */
  const restored = new Map(lengths.map((tokens) => [tokens, { DDR: [] as number[], NVMe: [] as number[] }]));
  {
    // the first calls of a session allocate, and those of a process compile
    const cached = await open();
    for (let i = 0; i < 4; i++) {
      for (const through of [model, cached]) await timed(through, randomPrompt(256), 2);
    }
    await cached.prefixCache.close();
    fs.rmSync(blocks, { recursive: true });
  }
  for (let round = 0; round < rounds; round++) {
    let cached = await open();
    const { runtime } = cached.prefixCache;
    const settled = (): Promise<unknown> => runtime.idle();
    const last = new Map<number, Tensor>();
    for (const tokens of lengths) {
      const count = 2 * Math.max(1, Math.round(ROUND_TOKENS / 2 / tokens));
      for (let i = 0; i < count; i++) {
        const prompt = randomPrompt(tokens + MORE);
        const computed = (): Promise<Call> => timed(model, prompt, ANSWER);
        const notFound = async (): Promise<Call> => {
          if (values.control) return computed();
          const call = await timed(cached, prompt, ANSWER, settled);
          requireTurn(0);
          return call;
        };
        if (i % 2 === 0) {
          const first = await computed();
          pairs.get(tokens)?.push({ computed: first, notFound: await notFound() });
        } else {
          const first = await notFound();
          pairs.get(tokens)?.push({ computed: await computed(), notFound: first });
        }
        last.set(tokens, prompt);
      }
    }
    if (!values.control) {
      for (const [tokens, prompt] of last) {
        await settled();
        if (runtime.stores.hasDevice) {
          runtime.manager.evict(0, Math.floor(700 * (15 / 16)), runtime.nowUs());
          await settled();
        }
        restored.get(tokens)?.DDR.push((await timed(cached, prompt, 1)).firstMs);
        requireTurn(tokens);
      }
    }
    await cached.prefixCache.close();
    if (!values.control) {
      cached = await open();
      for (const [tokens, prompt] of last) {
        restored.get(tokens)?.NVMe.push((await timed(cached, prompt, 1)).firstMs);
        requireTurn(tokens);
      }
      await cached.prefixCache.close();
    }
    fs.rmSync(blocks, { recursive: true });
    process.stderr.write(`round ${round + 1} of ${rounds}\n`);
  }

  console.log(
    `${(tokenBytes / 1024).toFixed(0)} kB of KV a token, blocks of ${blockBytes} bytes, device ${values.device}, ` +
      `${values.threads} threads${values.spin ? ' that spin' : ''}, ${rounds} rounds${values.control ? ', control' : ''}`,
  );
  const rows = lengths.map((tokens) => rowOf(tokens, pairs.get(tokens) ?? [], restored.get(tokens)));
  if (!values.control) {
    console.log('\nFirst token, medians and shares of the computed one:\n');
    console.log('| cached tokens | computed | from DDR | from NVMe |\n|---|---|---|---|');
    for (const { tokens, computedMs, ddrMs, nvmeMs } of rows) {
      const cells = [ddrMs, nvmeMs].map((ms) => `${ms.toFixed(0)} ms (${percent(ms / computedMs)})`);
      console.log(`| ${tokens} | ${computedMs.toFixed(0)} ms | ${cells.join(' | ')} |`);
    }
  }
  console.log('\nNothing found, of the same call without a cache:\n');
  console.log(
    '| tokens | pairs | first token | whole call | processor time | processor time while the cache works |\n|---|---|---|---|---|---|',
  );
  for (const { tokens, count, first, whole, processor, own } of rows) {
    const cells = [first, whole, processor].map(([middle, half]) => `${percent(middle)} ± ${percent(half)}`);
    console.log(`| ${tokens} | ${count} | ${cells.join(' | ')} | ${percent(own)} |`);
  }
  if (values.json) console.log(JSON.stringify({ rows, pairs: [...pairs], restored: [...restored] }));
  await model.dispose();
} finally {
  fs.rmSync(scratch, { recursive: true, force: true });
}

function rowOf(
  tokens: number,
  pairs: readonly Pair[],
  restored: { readonly DDR: readonly number[]; readonly NVMe: readonly number[] } | undefined,
): {
  readonly tokens: number;
  readonly count: number;
  readonly computedMs: number;
  readonly ddrMs: number;
  readonly nvmeMs: number;
  readonly first: readonly [number, number];
  readonly whole: readonly [number, number];
  readonly processor: readonly [number, number];
  readonly own: number;
} {
  const ratio = (of: (call: Call) => number): readonly [number, number] =>
    middleOf(pairs.map(({ computed, notFound }) => of(notFound) / of(computed)));
  const [own] = middleOf(
    pairs.map(({ computed, notFound }) => notFound.ownProcessorMs / computed.processorMs),
  );
  return {
    tokens,
    count: pairs.length,
    computedMs: middleOf(pairs.map(({ computed }) => computed.firstMs))[0],
    ddrMs: middleOf(restored?.DDR ?? [])[0],
    nvmeMs: middleOf(restored?.NVMe ?? [])[0],
    first: ratio(({ firstMs }) => firstMs),
    whole: ratio(({ wholeMs }) => wholeMs),
    processor: ratio(({ processorMs }) => processorMs),
    own,
  };
}

/**
 * The median, and half the width of its interval of 95 %: between the order statistics that a binomial of 1/2, near to a
 * normal one, has in 95 of 100 cases on both sides (Conover, Practical Nonparametric Statistics, 3.2).
 */
function middleOf(numbers: readonly number[]): readonly [number, number] {
  const sorted = [...numbers].sort((a, b) => a - b);
  const { length } = sorted;
  if (length === 0) return [Number.NaN, Number.NaN];
  const half = length >> 1;
  const median = length % 2 === 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  const from = Math.max(0, Math.floor((length - 1.96 * Math.sqrt(length)) / 2));
  return [median, (sorted[length - 1 - from] - sorted[from]) / 2];
}

function processorMs(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1000;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}
