/**
 * What the scheduler costs on one thread. Prints a table, and JSON with --json.
 *
 * - Steps of a full batch that decodes 256 to 768 tokens a request: the time to plan one (`step`) and to
 *   settle it (`stepEnded`), as median, mean and 99.9th percentile. `roomy`: HBM holds all. `tight`: requests
 *   give way. `counted`: the same as roomy with a port that only counts blocks, so that the scheduler's own
 *   share shows beside the manager's.
 * - A million requests through one scheduler (`--requests N`), with the heap after each tenth of them: it
 *   must not grow. Start it with `node --expose-gc`, so that the heap is what is still needed.
 *
 * Blocks have 16 tokens, there is one tier, and every job ends at once.
 */

import { type KVPort, ManagerPort } from '../../src/runtime/batching/kvPort.ts';
import type { ServingRequest } from '../../src/runtime/batching/request.ts';
import { Scheduler } from '../../src/runtime/batching/scheduler.ts';
import { BlockKeys, ExternalKeys, KVManager, Outcome, type SequenceId } from '../../src/runtime/index.ts';
import { newArrays, Sequence } from '../../src/runtime/manager/sequence.ts';
import { SeededRandom } from '../../src/testing/index.ts';

const blockTokens = 16;

interface Times {
  readonly medianUs: number;
  readonly meanUs: number;
  readonly p999Us: number;
}

interface StepRow {
  readonly running: number;
  readonly case: string;
  readonly steps: number;
  readonly plan: Times;
  readonly settle: Times;
  readonly preemptions: number;
}

interface Tenth {
  readonly requests: number;
  readonly heapMB: number;
}

function newPort(blocks: number): KVPort {
  const manager = new KVManager({ unitBytes: [1], hbm: { capacityBytes: blocks } });
  const afterCall = (nowUs: number): void => {
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.complete(job, Outcome.LOADED, nowUs);
    }
  };
  return new ManagerPort(manager, { blockTokens, afterCall });
}

/** A port that knows how many blocks are open, and nothing else. */
function newCountingPort(blocks: number): KVPort {
  let open = 0;
  const close = (sequence: Sequence): void => {
    open -= sequence.length;
  };
  return {
    blockTokens,
    blockBytes: 1,
    capacityBlocks: blocks,
    hasLowerTier: false,
    disturbances: 0,
    matchLength: () => 0,
    canOpen: (_keys, _matched, wanted) => open + wanted <= blocks,
    canAllocate: (wanted) => open + wanted <= blocks,
    mayTakeFrom: () => true,
    open: () => new Sequence({}, 0 as SequenceId, { number: 0, blocks: 64, matched: 0 }, 0, newArrays(64)),
    load: () => true,
    loadFromBack: () => true,
    loadEstimate: () => undefined,
    recompute: () => true,
    computing: () => {},
    allocate: (sequence, from, to) => {
      if (open + to - from > blocks) return false;
      open += to - from;
      sequence.extendTo(to);
      return true;
    },
    seal: () => {},
    truncate: () => {},
    release: close,
    cancel: close,
    preempt: close,
    isUnsettled: () => false,
    placedBlocks: (sequence) => sequence.length,
  };
}

const source = new ExternalKeys({ tenant: 'bench', epoch: 0 });
let nextBlockId = 0;

/**
 * A request whose `shared` leading blocks are those of one of 32 prompts, and whose other blocks are its own.
 */
function newRequest(
  number: number,
  promptTokens: number,
  outputTokens: number,
  shared: number,
): ServingRequest {
  const full = Math.floor((promptTokens + outputTokens) / blockTokens);
  const prompt = number % 32;
  const ids = Array.from({ length: full }, (_, i) => (i < shared ? 1e12 + prompt * 1000 + i : ++nextBlockId));
  const keys = new BlockKeys(full + 1);
  source.hashBlocks(ids, 0, keys);
  return { id: `r${number}`, promptTokens, maxOutputTokens: outputTokens, keys };
}

function measureSteps(running: number, name: string, port: KVPort): StepRow {
  const steps = 10_000;
  const scheduler = new Scheduler({ maxSequences: running, maxBatchedTokens: 8192 }, port);
  const random = new SeededRandom(running);
  const requests = Array.from({ length: Math.ceil((running * (steps + 3000)) / 500) + running + 8 }, (_, i) =>
    newRequest(i, 64 + random.below(64), 256 + random.below(512), 2),
  );
  let added = 0;
  let nowUs = 0;
  const plan = new Float64Array(steps);
  const settle = new Float64Array(steps);
  for (let i = -2000; i < steps; i++) {
    while (scheduler.size < running + 4) scheduler.add(requests[added++], nowUs);
    const started = performance.now();
    scheduler.step(nowUs);
    const planned = performance.now();
    nowUs += 8000;
    scheduler.stepEnded({}, nowUs);
    if (i < 0) continue;
    plan[i] = (planned - started) * 1000;
    settle[i] = (performance.now() - planned) * 1000;
  }
  const { preemptions } = scheduler.counters;
  return { running, case: name, steps, plan: timesOf(plan), settle: timesOf(settle), preemptions };
}

function timesOf(us: Float64Array): Times {
  const meanUs = us.reduce((sum, each) => sum + each, 0) / us.length;
  us.sort();
  return { medianUs: us[us.length >> 1], meanUs, p999Us: us[Math.floor(us.length * 0.999)] };
}

interface Throughput {
  readonly requests: number;
  readonly steps: number;
  readonly seconds: number;
  readonly requestsPerS: number;
  readonly tenths: readonly Tenth[];
}

/** Requests of about 100 prompt and 50 output tokens, kept coming so that the batch is full. */
function measureRequests(requests: number): Throughput {
  const scheduler = new Scheduler({ maxSequences: 256 }, newPort(8192));
  const random = new SeededRandom(1);
  const tenths: Tenth[] = [];
  let added = 0;
  let finished = 0;
  let nowUs = 0;
  const started = performance.now();
  while (finished < requests) {
    while (added < requests && scheduler.size < 300) {
      scheduler.add(newRequest(added++, 32 + random.below(136), 1 + random.below(100), 2), nowUs);
    }
    scheduler.step(nowUs);
    nowUs += 8000;
    finished += scheduler.stepEnded({}, nowUs).finished.length;
    if (finished >= ((tenths.length + 1) * requests) / 10) {
      globalThis.gc?.();
      tenths.push({ requests: finished, heapMB: process.memoryUsage().heapUsed / 2 ** 20 });
    }
  }
  const seconds = (performance.now() - started) / 1000;
  const { steps } = scheduler.counters;
  return { requests, steps, seconds, requestsPerS: requests / seconds, tenths };
}

function countFrom(args: readonly string[]): number {
  const at = args.indexOf('--requests');
  return at === -1 ? 1_000_000 : Number(args[at + 1]);
}

measureSteps(64, 'warm-up', newPort(12_800));
const steps: StepRow[] = [];
for (const running of [64, 256, 1024]) {
  steps.push(measureSteps(running, 'roomy', newPort(running * 60)));
  steps.push(measureSteps(running, 'tight', newPort(running * 25)));
  steps.push(measureSteps(running, 'counted', newCountingPort(running * 60)));
}
const throughput = measureRequests(countFrom(process.argv));

if (process.argv.includes('--json')) {
  console.log(JSON.stringify({ bench: 'scheduler', blockTokens, steps, throughput }));
} else {
  const times = ({ medianUs, meanUs, p999Us }: Times): string =>
    [medianUs, meanUs, p999Us].map((us) => us.toFixed(1).padStart(9)).join('');
  console.log('microseconds      plan:  median     mean    99.9%   settle:  median     mean    99.9%');
  for (const row of steps) {
    const head = `${String(row.running).padStart(5)} ${row.case.padEnd(13)}`;
    console.log(`${head}     ${times(row.plan)}         ${times(row.settle)}   ${row.preemptions} preempted`);
  }
  const { requests, seconds, requestsPerS, tenths } = throughput;
  console.log(
    `\n${requests.toLocaleString('en-US')} requests in ${seconds.toFixed(1)} s: ` +
      `${Math.round(requestsPerS).toLocaleString('en-US')} a second, ${throughput.steps} steps`,
  );
  console.log(`heap after each tenth, MB: ${tenths.map(({ heapMB }) => heapMB.toFixed(1)).join('  ')}`);
}
