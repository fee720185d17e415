/**
 * Bit-identical while pages are compacted: streams that keep their own page tables decode in turns, others end,
 * and what is left is moved together on the device. Tokens and logits are those of the model alone.
 */

import { afterAll, beforeAll, expect, it } from 'vitest';
import { openCheckpoint } from '../../../examples/server/engine/checkpoint/index.ts';
import type { GenerationRequest } from '../../../examples/server/engine/index.ts';
import { Decoder } from '../../../examples/server/engine/model/index.ts';
import { sampleToken } from '../../../examples/server/engine/sampling.ts';
import { tinyModelDirectory } from '../../../examples/server/tinyModel/make.ts';
import type { PagedAttentionCache } from '../../../src/embed/pagedAttentionCache.ts';
import { KVRuntime, kvLayout } from '../../../src/index.ts';
import { SeededRandom, testSeed } from '../../../src/testing/index.ts';
import { ContinuousBatchKVCacheManager } from '../../../src/views/index.ts';
import { sized } from '../../sized.ts';
import { digestOf, PlainRun, type Traced } from './model/plainRun.ts';
import { answersOf, expectSame, randomTokens, requestOf } from './streams.ts';

const blockTokens = 16;
const streams = sized(24, 64);
const seed = testSeed(37);
const random = new SeededRandom(seed);

let requests: GenerationRequest[];
let expected: Traced[];
let kv: KVRuntime;
let decoder: Decoder;

beforeAll(async () => {
  await using plain = await PlainRun.open();
  requests = Array.from({ length: streams }, (_, i) =>
    requestOf(randomTokens(random, 10 + random.below(30)), i),
  );
  expected = await answersOf(plain, requests);
  const checkpoint = openCheckpoint(tinyModelDirectory);
  const { layers, kvHeads, headDim } = checkpoint.config;
  const layout = kvLayout({ layers, kvHeads, headDim, dtype: 'f32', blockTokens });
  kv = await KVRuntime.open({
    layout,
    model: 'tiny@1',
    secretKey: new Uint8Array(32).fill(9),
    hbmBytes: 256 * layout.blockBytes,
    blocksPerPage: 8,
  });
  const limits = { rows: 64, samples: 1, entries: 64, contextTokens: 512 };
  decoder = await Decoder.open(kv, checkpoint, layout, kv.stores.hbm.slabs, limits);
  checkpoint.tensors.close();
}, 600_000);
afterAll(() => kv.close());

class Stream {
  readonly request: GenerationRequest;
  readonly id: string;
  readonly tokens: number[];
  readonly logits: string[] = [];
  isDone = false;

  constructor(request: GenerationRequest, n: number) {
    this.request = request;
    this.id = `stream ${n}`;
    this.tokens = [...request.prompt];
  }

  /** Computes what has no KV yet, and samples. */
  async advance(cache: PagedAttentionCache, manager: ContinuousBatchKVCacheManager): Promise<void> {
    const { prompt, maxTokens, sampling } = this.request;
    const answered = this.logits.length;
    const from = answered === 0 ? 0 : this.tokens.length - 1;
    if (answered > 0) expect(manager.tryExtendCache(this.id, 1)).toBe(true);
    const pages = manager.getAllocation(this.id)?.pages ?? [];
    const blocks = pages.map(({ blockIndex }) => blockIndex);
    await cache.ready(blocks);
    const row = await decoder.run({
      tokens: Uint32Array.from(this.tokens.slice(from)),
      rows: Uint32Array.from(this.tokens.slice(from).flatMap((_, i) => [from + i, 0, 0, 0])),
      entries: cache.blockTable(blocks).entries,
      samples: Uint32Array.of(this.tokens.length - 1 - from),
    });
    this.logits.push(digestOf(row));
    const token = sampleToken(row, sampling, answered);
    this.tokens.push(token);
    this.isDone = token === 0 || token === 2 || this.logits.length === maxTokens;
    if (this.isDone) manager.releaseCache(this.id);
    expect(this.tokens.length).toBeLessThanOrEqual(prompt.length + maxTokens);
  }

  get traced(): Traced {
    return { tokens: this.tokens.slice(this.request.prompt.length), logits: this.logits };
  }
}

it(`${streams} streams give bit-identical tokens and logits, wherever their pages are moved`, async () => {
  using cache = kv.pagedCache();
  const manager = new ContinuousBatchKVCacheManager(cache, {
    initialPagesPerRequest: 1,
    cacheBlockSizeBytes: cache.blockBytes / blockTokens,
  });
  const all = requests.map((request, i) => new Stream(request, i));
  for (const stream of all) manager.allocateCache(stream.id, stream.tokens.length);
  const before = kv.manager.inspect.counters.copies;
  while (all.some(({ isDone }) => !isDone)) {
    for (const stream of all) if (!stream.isDone) await stream.advance(cache, manager);
    manager.compactCache();
  }
  expect(kv.manager.inspect.counters.copies - before, 'pages that were moved').toBeGreaterThan(0);
  expectSame(
    all.map(({ traced }) => traced),
    expected,
    `seed ${seed}`,
  );
  expect(manager.size).toBe(0);
}, 300_000);
