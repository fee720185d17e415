/** Each metric of the list is moved by what it counts, in a real runtime; the page of Prometheus has it, with its help and labels. */

import { describe, expect, it } from 'vitest';
import type { KVRuntime, KVRuntimeConfig, KVSequence } from '../../src/index.ts';
import { metrics } from '../../src/observe/metrics/catalogue.ts';
import { ValueHistogram } from '../../src/observe/metrics/histogram.ts';
import { prometheus } from '../../src/observe/metrics/prometheus.ts';
import { type RuntimeWatch, watchRuntime } from '../../src/observe/metrics/watch.ts';
import { JobPriority, Outcome, type TierStore } from '../../src/runtime/index.ts';
import type { ItemEnded } from '../../src/runtime/tier/tierStore.ts';
import { scratchDir } from '../backends/file/scratch.ts';
import {
  blocks,
  cacheBelow,
  openRuntime,
  prompt,
  promptBlocks,
  tenant,
  write,
} from '../embed/liveRuntime.ts';

/** Series that a test has moved so far: `name{label="value"}`. */
const moved = new Set<string>();

function readings(watch: RuntimeWatch): Map<string, number> {
  return new Map(
    metrics.flatMap((metric) =>
      metric.read(watch).map(({ labels, value }) => {
        expect(Object.keys(labels), metric.name).toEqual([...metric.labels]);
        return [
          `${metric.name}${JSON.stringify(labels)}`,
          value instanceof ValueHistogram ? value.count : value,
        ] as const;
      }),
    ),
  );
}

const counters = new Set(metrics.filter(({ kind }) => kind !== 'gauge').map(({ name }) => name));

/** @returns the names of metrics that the act moved */
async function moves(watch: RuntimeWatch, act: () => unknown): Promise<string[]> {
  const before = readings(watch);
  await act();
  await new Promise((resolve) => setImmediate(resolve));
  const names = new Set<string>();
  for (const [series, value] of readings(watch)) {
    const was = before.get(series) ?? 0;
    const [name] = series.split('{');
    if (counters.has(name)) expect(value, `${series} only grows`).toBeGreaterThanOrEqual(was);
    if (value === was) continue;
    moved.add(series);
    names.add(name);
  }
  return [...names];
}

const threeTiers = (more: Partial<KVRuntimeConfig> = {}): Promise<KVRuntime> =>
  openRuntime({
    ddrBytes: blocks(20),
    nvme: { dir: scratchDir(), bytes: blocks(40) },
    leavingShare: 1,
    ...more,
  });

async function computed(kv: KVRuntime, seed: number, byte = seed): Promise<KVSequence> {
  const sequence = await kv.begin(prompt(seed), { tenant, shareWaitMs: 0 });
  write(kv, sequence, byte);
  await kv.seal(sequence);
  return sequence;
}

async function begun(kv: KVRuntime, seed: number): Promise<void> {
  const sequence = await kv.begin(prompt(seed), { tenant });
  write(kv, sequence, seed);
  kv.release(sequence);
}

const has = (...names: string[]): unknown => expect.arrayContaining(names);

describe('what is found, where it lies and how it moves', () => {
  it('tokens and blocks by tier, loads and stores, residence, idleness and gaps', async () => {
    await using kv = await threeTiers();
    const watch = watchRuntime(kv);
    let sequence: KVSequence | undefined;
    expect(await moves(watch, async () => (sequence = await computed(kv, 1)))).toEqual(
      has(
        'tierkv_asked_blocks_total',
        'tierkv_missed_blocks_total',
        'tierkv_missed_tokens_total',
        'vllm:prefix_cache_queries_total',
        'vllm:external_prefix_cache_queries_total',
        'vllm:prompt_tokens_total',
        'vllm:request_queue_time_seconds',
        'tierkv_request_load_time_seconds',
        'vllm:request_prefill_time_seconds',
        'vllm:time_to_first_token_seconds',
        'vllm:kv_cache_usage_perc',
        'vllm:num_requests_running',
        'tierkv_sequences_open',
        'tierkv_tier_resident_bytes',
        'tierkv_tier_held_bytes',
        'tierkv_tier_blocks',
        'tierkv_tenant_requests_total',
        'tierkv_tenant_prompt_tokens_total',
        'tierkv_tenant_resident_bytes',
      ),
    );
    const more = Uint32Array.from([...prompt(1), 7, 8]);
    const step = (n: number): unknown =>
      sequence && kv.step([{ sequence, tokens: more.subarray(65 + n, 66 + n) }]);
    expect(await moves(watch, () => step(0))).toEqual(
      has(
        'vllm:inter_token_latency_seconds',
        'vllm:generation_tokens_total',
        'tierkv_tenant_generated_tokens_total',
      ),
    );
    expect(await moves(watch, () => sequence && kv.release(sequence))).toEqual(
      has(
        'vllm:e2e_request_latency_seconds',
        'vllm:request_decode_time_seconds',
        'vllm:request_prompt_tokens',
        'vllm:request_generation_tokens',
        'vllm:request_success_total',
        'tierkv_tier_cached_bytes',
      ),
    );
    expect(await moves(watch, () => begun(kv, 1))).toEqual(
      has(
        'vllm:prefix_cache_hits_total',
        'tierkv_hit_blocks_total',
        'tierkv_hit_tokens_total',
        'vllm:prompt_tokens_cached_total',
        'tierkv_tenant_cached_tokens_total',
        'vllm:kv_block_reuse_gap_seconds',
      ),
    );
    expect(await moves(watch, () => kv.manager.evict(0, promptBlocks, kv.nowUs()))).toEqual(
      has(
        'tierkv_evicted_blocks_total',
        'tierkv_evicted_tokens_total',
        'vllm:kv_block_idle_before_evict_seconds',
        'vllm:kv_block_lifetime_seconds',
        'tierkv_tier_leaving_bytes',
        'tierkv_transfers_in_flight',
        'tierkv_link_transfers',
      ),
    );
    expect(await moves(watch, () => kv.idle())).toEqual(
      has(
        'vllm:kv_offload_store_bytes_total',
        'vllm:kv_offload_store_time_total',
        'tierkv_store_blocks_total',
        'tierkv_store_tokens_total',
        'tierkv_store_duration_seconds',
        'tierkv_link_bytes_total',
        'tierkv_link_busy_seconds_total',
      ),
    );
    const tokens = promptBlocks * kv.layout.blockTokens;
    const { cache } = watch;
    expect([cache.tiers[1].storeBlocks, cache.tiers[1].storeTokens, cache.tiers[1].storeBytes]).toEqual([
      promptBlocks,
      tokens,
      blocks(promptBlocks),
    ]);
    expect(await moves(watch, () => begun(kv, 1))).toEqual(
      has(
        'vllm:external_prefix_cache_hits_total',
        'vllm:kv_offload_load_bytes_total',
        'vllm:kv_offload_load_time_total',
        'tierkv_load_blocks_total',
        'tierkv_load_tokens_total',
        'tierkv_load_duration_seconds',
        'tierkv_prefix_choice_blocks_total',
      ),
    );
    expect([cache.tiers[1].hitTokens, cache.tiers[1].loadTokens]).toEqual([tokens, tokens]);
    kv.release(await computed(kv, 2));
    for (const position of [0, 1]) {
      kv.manager.evict(position, 40, kv.nowUs());
      await kv.idle();
    }
    expect(await moves(watch, () => begun(kv, 2))).toEqual(has('tierkv_load_blocks_total'));
    expect(cache.tiers[2].hitBlocks).toBe(promptBlocks);
    for (const position of [0, 1, 2]) {
      await moves(watch, () => kv.manager.evict(position, 40, kv.nowUs()));
      await kv.idle();
    }
    expect(cache.tiers[2].droppedBlocks).toBeGreaterThan(0);
    expect(await moves(watch, () => begun(kv, 2))).toEqual(
      has('tierkv_returned_blocks_total', 'tierkv_returned_after_seconds'),
    );
    expect(cache.returns.newest(10)).toHaveLength(promptBlocks);
    expect(await moves(watch, () => cacheBelow(kv, 3, 2))).toEqual(has('tierkv_store_blocks_total'));
  });

  it('blocks that are computed although a lower tier has them', async () => {
    await using kv = await threeTiers();
    const watch = watchRuntime(kv);
    const sequence = await computed(kv, 1);
    const key = sequence.groups[0].keys.words.slice(0, 4);
    kv.release(sequence);
    kv.manager.evict(0, 20, kv.nowUs());
    await kv.idle();
    const table = kv.manager.open(key, 1, kv.nowUs());
    await moves(watch, () => kv.manager.recompute(table, 0, 1, kv.nowUs()));
    expect(watch.cache.choseRecompute).toBe(1);
    expect(watch.cache.stories(1)[0]).toMatchObject({ blocks: 1, foundByTier: [0, 1, 0], recomputed: 1 });
    kv.manager.release(table, kv.nowUs());
  });

  it('blocks that come back up in the moment in which they are sent down', async () => {
    await using kv = await threeTiers();
    const watch = watchRuntime(kv);
    await cacheBelow(kv, 1, 1);
    const sequence = await kv.begin(prompt(1), { tenant });
    const key = sequence.groups[0].keys.words.slice(0, 4);
    kv.release(sequence);
    const nowUs = kv.nowUs();
    const returns = (): void => {
      kv.manager.evict(0, 20, nowUs); // the tier below has them still
      kv.manager.move(key, 0, JobPriority.PREFETCH, nowUs);
    };
    expect(await moves(watch, returns)).toEqual(has('tierkv_thrashed_blocks_total'));
    await kv.idle();
  });

  it('the size of each tier, as it is configured', async () => {
    await using small = await threeTiers();
    await using large = await threeTiers({
      ddrBytes: blocks(30),
      nvme: { dir: scratchDir(), bytes: blocks(60) },
    });
    const sizes = (kv: KVRuntime): (number | undefined)[] =>
      ['ddr', 'nvme'].map((tier) =>
        readings(watchRuntime(kv)).get(`tierkv_tier_capacity_bytes${JSON.stringify({ tier })}`),
      );
    const capacities = (kv: KVRuntime): number[] =>
      [1, 2].map((at) => kv.manager.inspect.usage(at).capacityBytes);
    expect([sizes(small), sizes(large)]).toEqual([capacities(small), capacities(large)]);
    expect(sizes(large)[0]).toBeGreaterThan(sizes(small)[0] ?? Infinity);
    moved.add('tierkv_tier_capacity_bytes{}');
  });

  it('requests that join what is on its way, or find no room', async () => {
    await using kv = await threeTiers();
    const watch = watchRuntime(kv);
    await cacheBelow(kv, 1, 1);
    expect(await moves(watch, () => Promise.all([1, 1].map((seed) => begun(kv, seed))))).toEqual(
      has('tierkv_joined_blocks_total'),
    );
    const holders = await Promise.all([2, 3, 4, 6].map((seed) => computed(kv, seed)));
    let waiting: Promise<KVSequence> | undefined;
    const asks = async (): Promise<void> => {
      await expect(kv.begin(prompt(5), { tenant })).rejects.toMatchObject({ code: 'TKV_FULL' });
      waiting = kv.begin(prompt(5), { tenant, wait: true });
      await new Promise((resolve) => setImmediate(resolve));
    };
    expect(await moves(watch, asks)).toEqual(
      has(
        'vllm:kv_offload_allocation_failure_total',
        'tierkv_requests_waiting_for_room',
        'vllm:num_requests_waiting',
      ),
    );
    expect(watch.requests.ended.get('refused')).toBe(1);
    expect(watch.requests.waiting).toBe(1);
    for (const holder of holders) kv.release(holder);
    if (waiting !== undefined) kv.release(await waiting);
    expect([watch.requests.waiting, watch.requests.open]).toEqual([0, 0]);
  });
});

it('requests of a scheduler, and requests that give way', async () => {
  await using kv = await threeTiers({ hbmBytes: blocks(10) });
  const watch = watchRuntime(kv);
  const scheduler = kv.scheduler({ maxBatchedTokens: 256 });
  const waits = (): void => {
    for (const [i, seed] of [1, 2].entries()) {
      scheduler.add({ id: `${i}`, tokens: prompt(seed), tenant: `tenant ${i}`, maxTokens: 4 });
    }
  };
  expect(await moves(watch, waits)).toEqual(has('vllm:num_requests_waiting', 'tierkv_tenant_requests_total'));
  const serve = async (): Promise<void> => {
    while (scheduler.size > 0) {
      const plan = scheduler.step();
      if (plan.requests.length === 0) await scheduler.next();
      else
        scheduler.stepEnded(
          plan.requests.filter(({ samples }) => samples).map(({ id }) => ({ id, token: 3 })),
        );
    }
  };
  expect(await moves(watch, serve)).toEqual(
    has('vllm:request_success_total', 'vllm:time_to_first_token_seconds'),
  );
  expect(watch.requests.ended.get('length')).toBe(2);
  expect(watch.requests.tokens).toBe(8);
  const [last] = watch.requests.recent(1);
  const { askedUs, hashedUs, placedUs, filledUs, prefilledUs, endedUs } = last;
  const times = [askedUs, hashedUs, placedUs, filledUs, prefilledUs, endedUs];
  expect(times).toEqual([...times].sort((a, b) => a - b));
  expect(last).toMatchObject({ promptTokens: 65, tokens: 4, how: 'length', story: { blocks: 4 } });
  const table = kv.manager.open(new Uint32Array(0), 0, kv.nowUs());
  expect(await moves(watch, () => kv.manager.preempt(table, kv.nowUs()))).toEqual(
    has('vllm:num_preemptions_total'),
  );
});

describe('what goes wrong', () => {
  it('copies that differ', async () => {
    await using kv = await threeTiers();
    const watch = watchRuntime(kv);
    const [first, second] = await Promise.all(
      [0, 1].map(() => kv.begin(prompt(1), { tenant, shareWaitMs: 0 })),
    );
    write(kv, first, 1);
    write(kv, second, 9);
    await kv.seal(first);
    expect(await moves(watch, () => kv.seal(second))).toEqual(has('tierkv_diverged_blocks_total'));
  });

  it('a lost device, and blocks that were nowhere else', async () => {
    await using kv = await threeTiers();
    const watch = watchRuntime(kv);
    kv.release(await computed(kv, 1));
    const loss = async (): Promise<void> => {
      kv.device.destroy();
      while (kv.devicesLost === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    };
    expect(await moves(watch, loss)).toEqual(
      has('tierkv_devices_lost_total', 'tierkv_lost_blocks_total', 'tierkv_device_present'),
    );
    while (kv.describe().runtime.devicePresent !== true)
      await new Promise((resolve) => setTimeout(resolve, 1));
  });

  it('blocks that are dropped because too many leave, or the budget does not pay for them', async () => {
    await using kv = await threeTiers({ leavingShare: 0.1 });
    const watch = watchRuntime(kv);
    for (const seed of [1, 2, 3, 4]) kv.release(await computed(kv, seed)); // HBM is full then
    expect(await moves(watch, () => begun(kv, 5))).toEqual(
      has('vllm:kv_offload_stores_skipped_total', 'tierkv_dropped_blocks_total'),
    );
    expect(await moves(watch, () => begun(kv, 1))).toEqual(has('tierkv_returned_blocks_total'));
    const writeBudget = { bytesPerByteRead: 0, bytesPerSecond: 0 };
    await using poor = await openRuntime({ nvme: { dir: scratchDir(), bytes: blocks(4), writeBudget } });
    const poorWatch = watchRuntime(poor);
    await cacheBelow(poor, 1, 1); // the budget begins with the size of the tier
    poor.release(await computed(poor, 2));
    const evicts = (): unknown => poor.manager.evict(0, 4, poor.nowUs());
    expect(await moves(poorWatch, evicts)).toEqual(has('vllm:kv_offload_stores_skipped_total'));
  });

  const failures = [Outcome.MISSING, Outcome.CORRUPT, Outcome.TIMED_OUT, Outcome.REFUSED, Outcome.CANCELLED];
  it.each(failures)('loads and stores that end with outcome %i', async (outcome) => {
    let fails = false;
    const failing = <Store extends TierStore>(store: Store): Store =>
      new Proxy(store, {
        get(target, property) {
          const value: unknown = Reflect.get(target, property, target);
          if (typeof value !== 'function') return value;
          if (!fails || (property !== 'read' && property !== 'write')) return value.bind(target);
          return async (items: readonly unknown[], ended?: ItemEnded) => {
            await undefined; // ends come after the call has returned
            const result = { outcome, reason: 'on purpose' };
            for (const index of items.keys()) ended?.(index, result);
            return items.map(() => result);
          };
        },
      });
    for (const ddrBytes of [0, blocks(20)]) {
      fails = false;
      await using kv = await openRuntime({
        ddrBytes,
        nvme: { dir: scratchDir(), bytes: blocks(40) },
        leavingShare: 1,
        wrapStores: ({ hbm, ddr, nvme }) => ({
          hbm: ddrBytes === 0 || hbm === undefined ? hbm : failing(hbm),
          ...(ddr === undefined ? {} : { ddr }),
          ...(nvme === undefined ? {} : { nvme: failing(nvme) }),
        }),
      });
      const watch = watchRuntime(kv);
      await cacheBelow(kv, 1, 1);
      kv.release(await computed(kv, 2));
      fails = true;
      expect(await moves(watch, () => begun(kv, 1))).toEqual(has('tierkv_load_failures_total'));
      kv.manager.evict(0, promptBlocks, kv.nowUs());
      expect(await moves(watch, () => kv.idle())).toEqual(has('tierkv_store_failures_total'));
    }
  });

  it('transfers that do not end in time', async () => {
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    let slow = '';
    const dir = scratchDir();
    await using kv = await openRuntime({
      nvme: { dir, bytes: blocks(40) },
      leavingShare: 1,
      transferDeadlineMs: 1000, // the transfers before it, which nothing holds, come in time on a busy machine too
      wrapStores: ({ hbm, nvme }) => ({
        hbm,
        ...(nvme === undefined
          ? {}
          : {
              nvme: new Proxy(nvme, {
                get(target, property) {
                  const value: unknown = Reflect.get(target, property, target);
                  if (typeof value !== 'function') return value;
                  return async (...args: unknown[]) => {
                    if (property === slow) await ended;
                    return value.apply(target, args);
                  };
                },
              }),
            }),
      }),
    });
    const watch = watchRuntime(kv);
    await cacheBelow(kv, 1, 1);
    slow = 'read';
    expect(await moves(watch, () => begun(kv, 1))).toEqual(has('tierkv_load_deadline_misses_total'));
    slow = 'write';
    kv.release(await computed(kv, 2));
    kv.manager.evict(0, promptBlocks, kv.nowUs());
    expect(await moves(watch, () => kv.idle())).toEqual(
      has('tierkv_store_deadline_misses_total', 'tierkv_transfers_overdue'),
    );
    end();
  });

  it('blocks that an earlier run left', async () => {
    const dir = scratchDir();
    const first = await openRuntime({ nvme: { dir, bytes: blocks(40) }, leavingShare: 1 });
    await cacheBelow(first, 1, 1);
    await first.close();
    await using kv = await openRuntime({ nvme: { dir, bytes: blocks(40) } });
    const adopted = 'tierkv_adopted_blocks_total{}';
    expect(readings(watchRuntime(kv)).get(adopted)).toBe(promptBlocks);
    moved.add(adopted); // from the 0 of a directory that is new, which the other tests open
  });
});

it('and there are no others: the page has each, with its help, type and labels', async () => {
  await using kv = await threeTiers();
  const watch = watchRuntime(kv);
  await cacheBelow(kv, 1, 1);
  const page = await prometheus(watch, { labels: { model_name: 'a "model"\\' } });
  const text = await page.text();
  // of a runtime with a shared tier alone: moved beside the server that ends, in test/embed/remote
  const shared = ['tierkv_breaker_state', 'tierkv_breaker_openings_total'];
  // says how the runtime was opened, and never changes
  expect(text).toMatch(/^vllm:cache_config_info\{.*block_size="16".*num_gpu_blocks="20".*\} 1$/m);
  const fixed = [...shared, 'vllm:cache_config_info'];
  const names = new Set([...moved].map((series) => series.split('{')[0]));
  expect(metrics.map(({ name }) => name).filter((name) => !names.has(name) && !fixed.includes(name))).toEqual(
    [],
  );
  for (const { name, help, kind, labels } of metrics) {
    expect(text).toContain(`# HELP ${name} ${help}\n# TYPE ${name} ${kind}\n`);
    if (shared.includes(name)) continue;
    const line = text.split('\n').find((each) => new RegExp(`^${name}(_bucket)?\\{`).test(each)) ?? '';
    expect(line, name).toContain('model_name="a \\"model\\"\\\\"');
    for (const label of labels) expect(line, name).toContain(`${label}="`);
  }
  expect(await page.text()).toBe(text);
});

it('control: each tier and each reason was moved where the metric has it, not only one of them', () => {
  const of = (name: string): string[] =>
    [...moved].filter((series) => series.startsWith(`${name}{`)).map((series) => series.slice(name.length));
  expect(of('tierkv_hit_blocks_total')).toEqual(
    expect.arrayContaining(['hbm', 'ddr', 'nvme'].map((tier) => JSON.stringify({ tier }))),
  );
  for (const name of ['tierkv_load_failures_total', 'tierkv_store_failures_total']) {
    const reasons = ['missing', 'corrupt', 'timedOut', 'refused', 'cancelled'];
    expect(of(name)).toEqual(
      expect.arrayContaining(
        ['ddr', 'nvme'].flatMap((tier) =>
          (name.includes('store') && tier === 'nvme' ? [] : reasons).map((reason) =>
            JSON.stringify({ tier, reason }),
          ),
        ),
      ),
    );
  }
});
