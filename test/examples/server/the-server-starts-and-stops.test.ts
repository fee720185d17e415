/** Metrics that move, a stop that saves, and a start that goes on with what was saved. */

import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from 'vitest';
import { serverOptions } from '../../../examples/server/api/index.ts';
import { metricsPage } from '../../../examples/server/api/metricsText.ts';
import { Engine } from '../../../examples/server/engine/index.ts';
import { tinyModelDirectory } from '../../../examples/server/tinyModel/make.ts';
import { parseStepRecords } from '../../../src/sim/latency/fit/stepRecords.ts';
import { sharedDevice } from '../../sharedDevice.ts';
import { blockBytes, LiveServer, model, removeStateDirectories, stateDirectory } from './liveServer.ts';

afterAll(removeStateDirectories);

const ask = (n: number, more: object = {}) => ({
  model,
  prompt: `Conversation ${n}. ${'The captain knew every island. '.repeat(3)} ${n}`,
  max_tokens: 8,
  temperature: 0,
  ...more,
});

describe('the metrics', () => {
  it('each move with what they count', async () => {
    await using server = await LiveServer.start({
      hbmBytes: 28 * blockBytes,
      ddrBytes: 64 * blockBytes,
      maxSequences: 8,
    });
    const client = server.client();
    const before = await server.metrics();
    const running: number[] = [];
    const waiting: number[] = [];
    const load = Promise.all(
      Array.from({ length: 16 }, (_, i) =>
        client.completions.create(ask(i % 8, { max_tokens: 24 + i, ignore_eos: true })),
      ),
    );
    let isOver = false;
    void load.then(() => {
      isOver = true;
    });
    for (; !isOver; await sleep(10)) {
      const now = await server.metrics();
      running.push(now.get('vllm:num_requests_running') ?? 0);
      waiting.push(now.get('vllm:num_requests_waiting') ?? 0);
    }
    await load;
    const stop = (await client.completions.create(ask(50, { max_tokens: 30 }))).choices[0].text.slice(2, 4);
    await client.completions.create(ask(50, { max_tokens: 30, stop }));
    const stream = await client.completions.create({ ...ask(51, { max_tokens: 200 }), stream: true });
    for await (const _ of stream) break;
    await server.idle();
    for (let i = 0; i < 8; i++) await client.completions.create(ask(i));
    const after = await server.metrics();
    const grown = (name: string): number =>
      (after.get(name) ?? Number.NaN) - (before.get(name) ?? Number.NaN);
    expect(Math.max(...running)).toBeGreaterThan(1);
    expect(Math.max(...waiting)).toBeGreaterThan(0);
    const moved = [
      'num_preemptions_total',
      'prompt_tokens_total',
      'generation_tokens_total',
      'prompt_tokens_cached_total',
      'request_success_total{finished_reason="length"}',
      'request_success_total{finished_reason="stop"}',
      'request_success_total{finished_reason="abort"}',
      'kv_cache_usage_perc',
      'prefix_cache_queries_total',
      'prefix_cache_hits_total',
      'external_prefix_cache_queries_total',
      'external_prefix_cache_hits_total',
      'time_to_first_token_seconds_count',
      'inter_token_latency_seconds_count',
      'e2e_request_latency_seconds_count',
      'request_queue_time_seconds_count',
      'request_prefill_time_seconds_count',
      'request_decode_time_seconds_count',
      'request_prompt_tokens_count',
      'request_generation_tokens_count',
      'kv_block_lifetime_seconds_count{tier="hbm"}',
      'kv_block_idle_before_evict_seconds_count{tier="hbm"}',
      'kv_block_reuse_gap_seconds_count{tier="ddr"}',
      'kv_offload_allocation_failure_total',
      'kv_offload_store_bytes_total{tier="ddr"}',
      'kv_offload_load_bytes_total{tier="ddr"}',
      'kv_offload_store_time_total{tier="ddr"}',
      'kv_offload_load_time_total{tier="ddr"}',
    ];
    for (const name of moved) expect(grown(`vllm:${name}`), name).toBeGreaterThan(0);
    expect(grown('tierkv_load_blocks_total{tier="ddr"}')).toBeGreaterThan(0);
    expect(grown('vllm:e2e_request_latency_seconds_count')).toBe(16 + 2 + 1 + 8);
    const infinite = after.get('vllm:e2e_request_latency_seconds_bucket{le="+Inf"}');
    expect(infinite).toBe(after.get('vllm:e2e_request_latency_seconds_count'));
  });
});

it('a block that is dropped since others are still on their way down is a store that was skipped', async () => {
  const engine = await Engine.open({
    directory: tinyModelDirectory,
    model: 'tiny@1',
    cache: {
      secretKey: new Uint8Array(32).fill(1),
      hbmBytes: 28 * blockBytes,
      ddrBytes: 64 * blockBytes,
      leavingShare: 0.01,
      migration: false,
      device: sharedDevice,
    },
  });
  const page = metricsPage(engine, 'tiny');
  const skipped = async (): Promise<number> =>
    Number(/^vllm:kv_offload_stores_skipped_total\{.*reason="behind".*\} (\d+)$/m.exec(await page())?.[1]);
  expect(await skipped()).toBe(0);
  for (let round = 0; round < 6; round++) {
    const answers = Array.from({ length: 6 }, (_, i) =>
      engine.submit({
        prompt: Array.from({ length: 60 }, (_, at) => 3 + ((round * 97 + i * 31 + at * 7) % 500)),
        tenant: `tenant ${round} ${i}`,
        maxTokens: 2,
        sampling: { temperature: 0, topK: 0, topP: 1, seed: 0 },
        stop: [],
      }),
    );
    await Promise.all(answers.map((answer) => answer.text()));
  }
  expect(await skipped()).toBeGreaterThan(0);
  await engine.close();
});

describe('a restart', () => {
  it('finds what was computed before the stop, and answers the same', async () => {
    const state = stateDirectory();
    const steps = join(state, 'steps.csv');
    const options = {
      state,
      hbmBytes: 64 * blockBytes,
      ddrBytes: 64 * blockBytes,
      nvmeBytes: 256 * blockBytes,
    };
    const answers: string[] = [];
    {
      await using server = await LiveServer.start({ ...options, steps });
      for (let i = 0; i < 4; i++) {
        answers.push((await server.client().completions.create(ask(i))).choices[0].text);
      }
      expect(await server.serving.stop()).toBeGreaterThan(4);
    }
    await using server = await LiveServer.start(options);
    let blocks = 0;
    for (let i = 0; i < 4; i++) {
      const { choices, usage } = await server.client().completions.create(ask(i));
      expect(choices[0].text).toBe(answers[i]);
      blocks += Math.floor(((usage?.prompt_tokens ?? 0) - 1) / 16);
    }
    // Each was found. Whether it was loaded or computed once more depends on which was quicker.
    const { counters } = server.serving.engine.cache.kv.metrics();
    expect(counters['hits.hbm'] + counters['hits.ddr'] + counters['hits.nvme']).toBe(blocks);
    expect(counters['hits.nvme']).toBeGreaterThan(0);
    const [head, ...rows] = readFileSync(steps, 'utf8').trim().split('\n');
    expect(head).toMatch(/^experiment,model,tp,prefill_requests/);
    expect(rows.length).toBeGreaterThan(4 * 8 - 1);
    const records = parseStepRecords(readFileSync(steps, 'utf8'), steps);
    expect(records.length).toBe(rows.length);
    expect(records.some(({ decodeRequests }) => decodeRequests > 0)).toBe(true);
  });

  it('lets requests under way end first, and takes no new ones', async () => {
    const server = await LiveServer.start({ hbmBytes: 64 * blockBytes, ddrBytes: 0 });
    const under = server.client().completions.create(ask(1, { max_tokens: 40, ignore_eos: true }));
    while (server.serving.engine.size === 0) await new Promise((resolve) => setTimeout(resolve, 2));
    const stopped = server.serving.stop();
    expect((await under).usage?.completion_tokens).toBe(40);
    await stopped;
    await expect(server.client().completions.create(ask(2))).rejects.toThrow();
  });
});

describe('the command', () => {
  const main = join(import.meta.dirname, '..', '..', '..', 'examples', 'server', 'main.ts');
  const run = promisify(execFile);

  it('shows its options', async () => {
    const { stdout } = await run(process.execPath, [main, '--help']);
    expect(stdout).toContain('--model DIR');
  });

  it.each([
    [['--prot', '1'], /--prot/],
    [['--port', 'x'], /--port is x/],
    [['--model', '/nowhere'], /config.json: cannot be read/],
    [['--hbm-mib', '0'], /--hbm-mib is 0/],
    [['--state', '/proc/x'], /--state \/proc\/x cannot hold the KV: .*Name another directory/],
    [['--state', '/dev/null/x'], /--state \/dev\/null\/x cannot hold the KV/],
    [['--state', ''], /--state is empty/],
    [['--steps', '/nowhere/steps.csv'], /'\/nowhere\/steps.csv'/],
  ])('ends with one line and exit code 2 for %j', async (args, words) => {
    const failed = await run(process.execPath, [main, '--port', '0', ...args]).catch(
      (error: unknown) => error,
    );
    const { code, stderr } = failed as { code: number; stderr: string };
    expect(code).toBe(2);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(stderr).toMatch(words);
  });

  it('reads keys and their tenants, and refuses what cannot be read as one', () => {
    const { apiKeys } = serverOptions([], { TIERKV_API_KEYS: 'a=x, b=y' });
    expect([...apiKeys]).toEqual([
      ['a', 'x'],
      ['b', 'y'],
    ]);
    expect(() => serverOptions([], { TIERKV_API_KEYS: 'a' })).toThrow(/key=tenant/);
    expect(() => serverOptions([], { TIERKV_API_KEYS: ' , ' })).toThrow(/has no key/); // it lets no one in
    expect(serverOptions([], { TIERKV_API_KEYS: '' }).apiKeys.size).toBe(0);
    expect(() => serverOptions([], { TIERKV_API_KEYS: 'a=x,a=y' })).toThrow(/key=tenant/);
  });
});
