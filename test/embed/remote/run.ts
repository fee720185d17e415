/**
 * The campaign of runtimes that share a server, through the fault proxy: what one runtime computed another one asks
 * for with `begin`, while the way to the server changes at random, and each block that `begin` calls cached is read
 * from the device and compared.
 *
 *     npm run campaign -- shared --blocks 1000000 --seed 1
 *
 * Then the server is killed, and `begin` on prompts that the runtime has itself is timed beside the same runtime
 * without a shared tier, in turns.
 *
 * It ends with an error for one wrong block, a `begin` beyond its deadline, or where the control, which expects the
 * bytes of another prompt, finds nothing wrong.
 */

import { parseArgs } from 'node:util';
import { runningClock } from '../../../src/backends/runningClock.ts';
import { BufferUsage, MapMode } from '../../../src/backends/webgpu/device.ts';
import { KVRuntime, type KVRuntimeConfig, type KVSequence } from '../../../src/index.ts';
import { kvLayout } from '../../../src/runtime/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { FaultProxy, type ProxyWay, proxyWays } from '../../backends/remote/faultProxy.ts';
import { hasRedis, startRedis } from '../../backends/remote/redisServer.ts';

const { values: options } = parseArgs({
  options: {
    blocks: { type: 'string', default: '1000000' },
    seed: { type: 'string', default: '1' },
    hits: { type: 'string', default: '2000' },
  },
});
const [blocksAsked, seed, hits] = [Number(options.blocks), Number(options.seed), Number(options.hits)];
if (!hasRedis) throw new Error('no redis-server here. Install it: apt-get install redis-server');

/** Small blocks, so that a million of them are compared in minutes. */
const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 64, dtype: 'f16', blockTokens: 4 });
const PROMPT_BLOCKS = 64;
const HBM_PROMPTS = 6;
const tenant = 'campaign';
const limits = { lookupMs: 200, deadlineMs: 400, connectMs: 1000 };
/**
 * A `begin` ends by `lookupMs` and the deadline of a transfer, in time in which this process ran; timers of a busy
 * process ring late.
 */
const TRANSFER_MS = 1000;
const BEGIN_MS = limits.lookupMs + TRANSFER_MS;
const TIMER_MS = 500;

const random = new SeededRandom(seed);
const bytesOf = (prompts: number): number => prompts * PROMPT_BLOCKS * layout.blockBytes;
const open = (remoteUrl?: string, more: Partial<KVRuntimeConfig> = {}): Promise<KVRuntime> =>
  KVRuntime.open({
    layout,
    model: 'campaign@1',
    secretKey: new Uint8Array(32).fill(7),
    hbmBytes: bytesOf(HBM_PROMPTS),
    migration: false,
    transferDeadlineMs: TRANSFER_MS,
    ...(remoteUrl === undefined ? {} : { remote: { url: remoteUrl, bytes: bytesOf(64), ...limits } }),
    ...more,
  });
const promptOf = (number: number): Uint32Array =>
  Uint32Array.from({ length: PROMPT_BLOCKS * layout.blockTokens + 1 }, (_, i) => number * 1000 + i);
/** The word that fills block `index` of a prompt. */
const wordOf = (number: number, index: number): number => (number * PROMPT_BLOCKS + index) >>> 0;

await using server = await startRedis('--maxmemory', '8mb', '--maxmemory-policy', 'allkeys-lru');
await using proxy = await FaultProxy.open(server.port, random);
const runtimes = [await open(proxy.url), await open(proxy.url)];
const began = { count: 0, late: 0, longestMs: 0, ms: [] as number[] };
let [compared, wrong, controls, controlsWrong] = [0, 0, 0, 0];
const ways: Record<string, number> = {};
const started = performance.now();
let saidAt = started;
try {
  for (let number = 1; compared < blocksAsked; number++) {
    if (number % 16 === 0) {
      const isCalm = random.chance(0.8);
      const way: ProxyWay = isCalm ? 'pass' : proxyWays[random.below(proxyWays.length)];
      proxy.way = way;
      ways[way] = (ways[way] ?? 0) + 1;
      if (!isCalm && random.chance(0.1)) await server.restart();
      if (!isCalm && random.chance(0.2)) await server.ask('FLUSHALL');
    }
    const [one, other] = number % 2 === 0 ? runtimes : [runtimes[1], runtimes[0]];
    await compute(one, number);
    await one.idle(); // what it computed is written by now
    for (let turn = 0; turn < 8; turn++) {
      await compute(other, number);
      await forget(other);
    }
    if (performance.now() - saidAt > 30_000) {
      saidAt = performance.now();
      console.log(JSON.stringify({ compared, wrong, began: began.count, late: began.late }));
    }
  }
  proxy.way = 'pass';
  const seconds = Math.round((performance.now() - started) / 1000);
  const quantile = (at: number): number => quantileOf(began.ms, at);
  console.log(
    JSON.stringify({
      ...{ seed, compared, wrong, ways, controls, controlsWrong, seconds },
      begin: { ...began, ms: undefined, p50: quantile(0.5), p99: quantile(0.99), deadlineMs: BEGIN_MS },
      remote: runtimes.map((kv) => kv.describe().remote),
    }),
  );
  if (wrong > 0) throw new Error(`${wrong} of ${compared} blocks were wrong (seed ${seed})`);
  if (began.late > 0) throw new Error(`${began.late} calls of begin were late (seed ${seed})`);
  if (controlsWrong < controls || controls === 0) throw new Error(`the control failed (seed ${seed})`);
  await timeLocalHits();
} finally {
  proxy.way = 'pass';
  for (const kv of runtimes) await kv.close();
}

/** Asks for a prompt as a server does: compares what is cached, and computes the rest. */
async function compute(kv: KVRuntime, number: number): Promise<void> {
  const unwatch = runningClock.watch();
  const start = runningClock.nowMs();
  const sequence = await kv.begin(promptOf(number), { tenant, wait: true });
  const ms = runningClock.nowMs() - start;
  unwatch();
  began.count++;
  began.ms.push(ms);
  began.longestMs = Math.max(began.longestMs, ms);
  if (ms > BEGIN_MS + TIMER_MS) began.late++;
  const cached = sequence.cachedTokens / layout.blockTokens;
  if (cached > 0) {
    const words = await read(kv, sequence, cached);
    for (let i = 0; i < cached; i++) {
      compared++;
      if (!words[i].every((word) => word === wordOf(number, i))) wrong++;
    }
    if (number % 8 === 0) {
      controls++;
      if (words[0].some((word) => word !== wordOf(number + 1, 0))) controlsWrong++;
    }
  }
  do {
    for (const { index } of kv.openBlocks(sequence)) {
      const { buffer, offsetBytes, sizeBytes } = kv.slot(sequence, index);
      const words = new Uint32Array(sizeBytes / 4).fill(wordOf(number, index));
      kv.device.queue.writeBuffer(buffer, offsetBytes, words);
    }
  } while ((await kv.seal(sequence)) === 'interrupted' && (await kv.recover(sequence).then(() => true)));
  kv.release(sequence);
}

/** Whatever lies in HBM leaves it, so that the next `begin` needs the server. */
async function forget(kv: KVRuntime): Promise<void> {
  await kv.idle();
  kv.manager.evict(0, HBM_PROMPTS * PROMPT_BLOCKS, kv.nowUs());
  await kv.idle();
}

async function read(kv: KVRuntime, sequence: KVSequence, blocks: number): Promise<Uint32Array[]> {
  const { device } = kv;
  const size = blocks * layout.blockBytes;
  const into = device.createBuffer({ size, usage: BufferUsage.MAP_READ | BufferUsage.COPY_DST });
  const encoder = device.createCommandEncoder();
  for (let i = 0; i < blocks; i++) {
    const { buffer, offsetBytes, sizeBytes } = kv.slot(sequence, i);
    encoder.copyBufferToBuffer(buffer, offsetBytes, into, i * layout.blockBytes, sizeBytes);
  }
  device.queue.submit([encoder.finish()]);
  await into.mapAsync(MapMode.READ);
  const words = new Uint32Array(into.getMappedRange()).slice();
  into.destroy();
  const each = layout.blockBytes / 4;
  return Array.from({ length: blocks }, (_, i) => words.subarray(i * each, (i + 1) * each));
}

/** p99 of `begin` on prompts in HBM: with the server killed, and without a shared tier, in turns. */
async function timeLocalHits(): Promise<void> {
  await using mortal = await startRedis();
  const shared = await open(mortal.url);
  const alone = await open();
  try {
    for (const kv of [shared, alone]) for (let number = 1; number <= 4; number++) await compute(kv, number);
    await mortal.kill();
    const times: Record<'shared' | 'alone', number[]> = { shared: [], alone: [] };
    for (let i = 0; i < hits; i++) {
      for (const [name, kv] of [
        ['shared', shared],
        ['alone', alone],
      ] as const) {
        const start = performance.now();
        const sequence = await kv.begin(promptOf(1 + (i % 4)), { tenant });
        times[name].push(performance.now() - start);
        if (sequence.readyTokens !== PROMPT_BLOCKS * layout.blockTokens) throw new Error('not a local hit');
        kv.release(sequence);
      }
    }
    const p99 = { shared: quantileOf(times.shared, 0.99), alone: quantileOf(times.alone, 0.99) };
    console.log(JSON.stringify({ hits, p99LocalHitMs: p99, ratio: p99.shared / p99.alone }));
  } finally {
    await shared.close();
    await alone.close();
  }
}

function quantileOf(values: readonly number[], at: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(at * sorted.length))];
}
