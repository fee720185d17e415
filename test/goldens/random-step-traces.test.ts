/**
 * The scheduler against the model of upstream with all repairs, on random requests and limits: small caches,
 * shared prefixes, chunks, both victim rules, all queue orders. Every step must agree in batch, tokens,
 * queue, blocks, hits and preemptions.
 */

import { expect, it } from 'vitest';
import { SeededRandom } from '../../src/testing/index.ts';
import { sized } from '../sized.ts';
import { SchedulerEngine } from './schedulerRun.ts';
import { firstDifference, type StepRow, type StepTrace, type TraceRequest } from './stepTrace.ts';
import { runTrace } from './traceLoop.ts';
import { UpstreamEngine } from './upstream/upstreamEngine.ts';
import { repaired } from './upstream/upstreamStore.ts';

const firstSeed = Number(process.env.TIERKV_SEED ?? 1);
const classes = ['critical', 'standard', 'batch', 'sheddable', 'background'];
const orders = ['fcfs', 'priority-fcfs', 'sjf', 'reverse-priority'];

function randomTrace(random: SeededRandom): StepTrace {
  const blockTokens = [1, 4, 16][random.below(3)];
  const blocks = 8 + random.below(40);
  const longest = Math.min(blocks * blockTokens - 8, 12 * blockTokens);
  const prefixes = Array.from({ length: 1 + random.below(4) }, (_, i) =>
    Array.from({ length: longest }, (_, j) => 1000 * i + j),
  );
  const requests: TraceRequest[] = [];
  let arrival = 0;
  for (let i = 0; i < 24; i++) {
    const shared = random.below(longest);
    const prefix = prefixes[random.below(prefixes.length)].slice(0, shared);
    const own = 1 + random.below(Math.max(1, longest - shared));
    const output = 1 + random.below(Math.min(24, blocks * blockTokens - shared - own));
    requests.push({
      id: `request_${i}`,
      arrival,
      input: [...prefix, ...Array.from({ length: own }, (_, j) => 100_000 + 100 * i + j)],
      output: Array.from({ length: output }, (_, j) => 500_000 + 100 * i + j),
      max_output_len: output,
      slo: classes[random.below(classes.length)],
    });
    arrival += random.chance(0.3) ? 0 : random.below(20_000);
  }
  const config = {
    blocks,
    block_size: blockTokens,
    max_num_seqs: 1 + random.below(8),
    max_num_batched_tokens: 8 + random.below(120),
    long_prefill_threshold: random.chance(0.5) ? 0 : 4 + random.below(40),
    max_model_len: 0,
    scheduler: orders[random.below(orders.length)],
    preemption: random.chance(0.5) ? 'fcfs' : 'priority',
  };
  return { config, requests, rows: [], preemptions: 0, lengthCapped: 0, meanFirstTokenUs: 0 };
}

/**
 * Upstream shows a request that gave way in front until the queue is sorted again: order the queue alike in
 * both.
 */
function alike(rows: readonly StepRow[], trace: StepTrace): StepRow[] {
  if (trace.config.scheduler === 'fcfs') return [...rows];
  return rows.map((row) => ({ ...row, waitq: [...row.waitq].sort() }));
}

it(`equals the repaired model on random requests (seed ${firstSeed})`, () => {
  let preemptions = 0;
  let hits = 0;
  for (let seed = firstSeed; seed < firstSeed + sized(40, 100); seed++) {
    const trace = randomTrace(new SeededRandom(seed));
    const ours = runTrace(trace, new SchedulerEngine(trace, { preemption: 'restart' }));
    const model = runTrace(trace, new UpstreamEngine(trace, repaired));
    expect(firstDifference(alike(ours, trace), alike(model, trace)), `seed ${seed}`).toBeUndefined();
    expect(ours.at(-1)?.done).toBe(trace.requests.length);
    preemptions += ours.at(-1)?.preempt ?? 0;
    if ((ours.at(-1)?.hit_rate ?? 0) > 0) hits++;
  }
  expect(preemptions).toBeGreaterThan(20);
  expect(hits).toBeGreaterThan(10);
});
