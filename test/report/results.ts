/** A result of each kind for tests of reports: of small real runs where they take moments, and by hand where they take minutes. */

import { join } from 'node:path';
import { benchReport } from '../../src/observe/report/benchReport.ts';
import { evaluationReport } from '../../src/observe/report/evaluationReport.ts';
import type { Report } from '../../src/observe/report/model.ts';
import { parityReport } from '../../src/observe/report/parityReport.ts';
import { planReport } from '../../src/observe/report/planReport.ts';
import { replayReport } from '../../src/observe/report/replayReport.ts';
import { ReplayTimeline } from '../../src/observe/report/replayTimeline.ts';
import { searchReport } from '../../src/observe/report/searchReport.ts';
import { simulationReport } from '../../src/observe/report/simulationReport.ts';
import { SimulationTimeline } from '../../src/observe/report/simulationTimeline.ts';
import { sweepReport } from '../../src/observe/report/sweepReport.ts';
import { defaultEviction, resolvePolicy } from '../../src/runtime/index.ts';
import { buildPlanned, runToEnd } from '../../src/sim/build/build.ts';
import type { BuiltSimulation } from '../../src/sim/build/built.ts';
import { goodputTargets } from '../../src/sim/build/classTargets.ts';
import { planSimulation } from '../../src/sim/build/plan.ts';
import { hasRun, type PointResult } from '../../src/sim/build/point.ts';
import type { DeploymentSpec } from '../../src/sim/description/knobs.ts';
import { fromFields } from '../../src/sim/description/readers.ts';
import { clusterMetrics } from '../../src/sim/report/metricsOutput.ts';
import type { ServedRequest } from '../../src/studies/parity/traffic.ts';
import type { PlanAnswer, PlanOption } from '../../src/studies/plan/plan.ts';
import { checkQuestion } from '../../src/studies/plan/question.ts';
import { figureNames } from '../../src/studies/plan/targets.ts';
import { runReplay } from '../../src/studies/replay/run.ts';

const command = 'tierkv --a-command';

export const small: DeploymentSpec = {
  model: 'qwen/qwen3-14b',
  engine: { kvBlocks: 900 },
  tiers: { hostBlocks: 3000 },
  pools: { instances: 2 },
  workload: { preset: 'chatbot', rate: 14, requests: 60 },
  targets: { ttftMs: { default: 500 } },
};

let once: Report | undefined;

/** The small simulation, run once. */
export function simulated(): Report {
  once ??= simulatedFrom(small);
  return once;
}

function simulatedFrom(spec: DeploymentSpec): Report {
  const plan = planSimulation(fromFields(spec));
  let built: BuiltSimulation | undefined;
  let timeline = new SimulationTimeline(() => []);
  const run = runToEnd((skipsKeys) => {
    timeline = new SimulationTimeline(() => built?.simulation.instances ?? []);
    built = buildPlanned(plan, { skipsKeys, observer: timeline });
    return built;
  });
  const targets = goodputTargets(run.deployment, run.opened.spec);
  const { table, instances } = run.simulation;
  const cluster = clusterMetrics(table, instances, targets, false);
  return simulationReport({ built: run, cluster, targets, timeline, command, warnings: [] });
}

const point = (instances: number, ttftP99Ms: number): PointResult => ({
  values: { 'num-instances': String(instances) },
  gpus: instances,
  completed: 100,
  injected: 100,
  responsesPerS: 10,
  tokensPerS: 1500 * instances,
  steps: ['steps: calibrated on H100, no step shorter than the hardware needs'],
  ttftMeanMs: ttftP99Ms / 2,
  ttftP99Ms,
  itlMeanMs: 10,
  itlP99Ms: 20,
  e2eMeanMs: 4000,
  e2eP99Ms: 9000,
  hitRate: 0.2,
  preemptions: 3,
  warnings: [],
});

export function swept(targets: { readonly ttftMs?: number } | undefined = { ttftMs: 500 }): Report {
  const results = [
    point(1, 4000),
    point(2, 420),
    point(4, 200),
    { values: { 'num-instances': '0' }, error: { message: 'num-instances is 0' } },
  ];
  const meets = ({ ttftP99Ms }: PointResult): boolean => ttftP99Ms <= (targets?.ttftMs ?? Infinity);
  const best = targets === undefined ? undefined : results.filter(hasRun).find(meets);
  const nameOf = ({ values }: Pick<PointResult, 'values'>): string =>
    `--num-instances ${values['num-instances']}`;
  return sweepReport({
    results,
    targets,
    byDemand: targets === undefined ? [] : [{ demand: {}, best }],
    meets,
    nameOf,
    command,
  });
}

export function evaluated(): Report {
  const evaluation = (score: number) => ({
    policyId: `id${score}`,
    score,
    objectives: [score, score / 2],
    metrics: { latency_ms: 900, ttft_p99_ms: 300, slo_attainment: 0.97, cache_hit_rate: 0.3, reject_rate: 0 },
    cases: ['chat/roofline/1', 'chat/roofline/2', 'agents/roofline/1'].map((id, i) => ({
      id,
      score: score + (i - 1) / 20,
      objectives: [score, score],
      metrics: {
        latency_ms: 900 + i,
        ttft_p99_ms: 300,
        slo_attainment: 0.97,
        cache_hit_rate: 0.3,
        reject_rate: 0,
      },
    })),
  });
  return evaluationReport({
    policies: [
      { name: 'routing/lor', evaluation: evaluation(0.12) },
      { name: 'routing/round-robin', evaluation: evaluation(0.02) },
      {
        name: 'broken',
        evaluation: {
          ...evaluation(-9),
          cases: [],
          error: { kind: 'compile', message: 'a colon is missing' },
        },
      },
    ],
    suite: 'train',
    objectiveNames: ['latency', 'fairness'],
    summary: 'In the worst case 12 requests waited.\nRegret was 0.3 s.',
    command,
  });
}

export function searched(leftOut?: string, error?: string, origin = 'crossover'): Report {
  const policy = (name: string, hidden: number) => ({
    name,
    id: name,
    hidden,
    settings: { 'chat/roofline': hidden, 'agents/roofline': hidden - 0.01 },
    cases: { 'chat/roofline/7': hidden + 0.02, 'agents/roofline/7': hidden - 0.02 },
  });
  return searchReport({
    outcome: {
      generations: 12,
      evaluations: 480,
      winner: {
        ...policy('the winner', 0.14),
        ...(error === undefined ? {} : { hidden: -100, settings: {}, cases: {}, error }),
        train: 0.05,
        validation: 0.04,
        origin,
        generation: 9,
      },
      presets: [policy('lor', 0.1), policy('round-robin', 0.01)],
      settings: [
        { setting: 'chat/roofline', winner: 0.14, bestPreset: 'lor', bestPresetScore: 0.1 },
        { setting: 'agents/roofline', winner: 0.13, bestPreset: 'lor', bestPresetScore: 0.09 },
      ],
      history: Array.from({ length: 13 }, (_, generation) => ({ generation, best: generation / 250 })),
    },
    individuals: Array.from({ length: 200 }, (_, i) => ({
      generation: i % 13,
      score: ((i * 37) % 100) / 500 - 0.1,
      origin: ['mutation', 'crossover', 'preset'][i % 3],
    })),
    ...(leftOut === undefined ? {} : { leftOut }),
    command,
    folder: 'search',
  });
}

/** Eighty requests, whose times are those of the first run times a factor. */
const served = (factor: number, startUs: number): ServedRequest[] =>
  Array.from({ length: 80 }, (_, i) => {
    const arrivalUs = startUs + 100_000 * i;
    const firstTokenUs = arrivalUs + factor * (60_000 + 2000 * (i % 20));
    return {
      key: `request_${i}`,
      arrivalUs,
      firstTokenUs,
      lastTokenUs: firstTokenUs + factor * 400_000,
      outputTokens: 20,
    };
  });

export function compared(): Report {
  const summary = (factor: number) => ({
    count: 80,
    mean: 90_000 * factor,
    p50: 80_000 * factor,
    p90: 150_000 * factor,
    p95: 200_000 * factor,
    p99: 400_000 * factor,
    max: 500_000 * factor,
  });
  const sides = { real: summary(1), predicted: summary(0.93), eachError: 0.08 };
  const errors = { meanError: -0.07, p50Error: -0.07, p99Error: -0.07 };
  return parityReport(
    {
      runner: 'a stand-in for qwen3-14b',
      adapter: { name: 'SwiftShader', software: true },
      latencyModel: 'calibrated',
      requests: 80,
      exact: { identical: true, lines: 12_345, firstDifference: null },
      hits: {
        real: { lookups: 900, rate: 0.41 },
        predicted: { lookups: 900, rate: 0.4 },
        byTier: { hbm: { real: 0.3, predicted: 0.3 }, ddr: { real: 0.11, predicted: 0.1 } },
        points: -1,
      },
      transfers: { ddrToHbm: { ...sides, medianError: -0.07 } },
      latencies: {
        ttft: { ...sides, ...errors },
        tpot: { ...sides, ...errors },
        e2e: { ...sides, ...errors },
      },
      wrongBlocks: 0,
      interruptedSteps: 0,
      served: { real: served(1, 5_000_000), predicted: served(0.93, 0) },
    },
    command,
  );
}

export function benched(down = 'hbmToDdr', up = 'ddrToHbm'): Report {
  const row = (link: string, unitBytes: number, gbps: number) => ({
    link,
    unitBytes,
    pattern: 'contiguous' as const,
    software: true,
    verified: link !== 'hbmToDdr', // nothing is verified on this link
    gbps,
    limitGbps: 12,
    limitStage: 'copy in',
    ratio: gbps / 12,
    spread: 0.1,
    stagesGbps: {},
    singleGbps: gbps / 2,
    aloneUs: 120,
  });
  return benchReport({
    adapter: { name: 'SwiftShader', software: true },
    links: [down, up, `${down}+${up}`].flatMap((link) => [
      row(link, 65_536, 6),
      row(link, 262_144, 8),
      row(link, 2_097_152, 11),
    ]),
    samples: Array.from({ length: 12 }, (_, i) => ({
      link: i % 2 === 0 ? down : up,
      unitBytes: 65_536,
      pattern: 'contiguous' as const,
      atS: 0.2 * (i + 1),
      seconds: 0.05,
      gbps: 6 + (i % 5) / 4,
    })),
    manager: [{ what: 'block allocate + free, 64 at a time', value: 3.2, unit: 'M pairs/s' }],
    command,
  });
}

const timeline = new ReplayTimeline();
await runReplay(
  {
    tracePath: join(import.meta.dirname, '../../data/mooncake-conversation-excerpt.jsonl.gz'),
    tiers: [
      { name: 'hbm', blocks: 1000 },
      { name: 'ddr', blocks: 4000 },
      { name: 'nvme', blocks: 20_000 },
    ],
    blockBytes: 16_384,
    blockTokens: 512,
    requests: 150,
    driver: 'modeled',
    eviction: resolvePolicy(defaultEviction),
    offloadThreshold: 1,
    linkBandwidthBytesPerS: 10e9,
    linkBaseLatencyUs: 10,
    skipBad: false,
  },
  {
    signal: new AbortController().signal,
    notice: () => {},
    progress: () => {},
    watch: (manager) => timeline.watch(manager),
  },
);

export function replayed(): Report {
  return replayReport({
    timeline,
    replay: {
      requests: 300,
      blockLookups: 8490,
      hits: { hbm: 299, ddr: 900, nvme: 1200 },
      hitDigest: 'd0',
      demotions: { hbmToDdr: 8000, ddrToNvme: 4000, dropped: 700 },
      bytesMoved: { hbmToDdr: 131_072_000, ddrToHbm: 14_745_600 },
      gbps: { hbmToDdr: 1.3, ddrToHbm: 2.1 },
      verified: 2399,
      verifyFailures: 0,
      adapter: { name: 'SwiftShader', software: true },
      wallSeconds: 4.3,
      decisionDigest: '2ac2',
      driver: 'real',
      policy: 'hazard',
      skippedLines: 0,
      tiers: { hbm: { store: 'webgpu', slabs: 2 } },
    },
    trace: 'trace.jsonl',
    command,
  });
}

export function studied(): Report {
  const row = (policy: string, capacity: number, hitPercent: number, points: number) => ({
    policy,
    capacity,
    hits: Math.round(hitPercent * 10),
    hitPercent,
    closedPercent: policy === 'lru' ? 0 : 40,
    points,
    nsPerBlock: 900,
  });
  const rows = [100, 1000].flatMap((capacity) => [
    row('lru', capacity, 20 + capacity / 100, 0),
    row('hazard', capacity, 22 + capacity / 100, 2),
    row('optimum', capacity, 26 + capacity / 100, 6),
  ]);
  return replayReport({
    study: { requests: 120, lookups: 1000, blockTokens: 512, lower: [0, 0], rows },
    trace: 'trace.jsonl',
    command,
  });
}

/** A plan whose answer holds on further seeds and gives way at twice the load. */
export function planned(): Report {
  const question = checkQuestion({
    model: 'qwen3-14b',
    workload: { preset: 'chatbot', rate: 40 },
    targets: { ttft_p99: 60, itl_p99: 20 },
    prices: { H100: 2.5 },
  });
  const option = (instances: number, ttftMs: number): PlanOption => {
    const itlMs = 30 / instances;
    const targets = [
      { figure: 'ttft_p99', boundMs: 60, ms: ttftMs, meets: ttftMs <= 60 },
      { figure: 'itl_p99', boundMs: 20, ms: itlMs, meets: itlMs <= 20 },
    ] as const;
    const figures = Object.fromEntries(
      figureNames.map((name) => [name, name.startsWith('itl') ? itlMs : ttftMs]),
    );
    return {
      deployment: {
        gpu: 'H100',
        tensorParallel: 1,
        instances,
        prefillInstances: 0,
        ddrGib: 0,
        nvmeGib: 0,
        routing: 'least-loaded',
        eviction: 'lru',
        batchedTokens: 2048,
        sequences: 256,
      },
      text: `${instances} instances x 1 H100`,
      gpus: instances,
      usdPerHour: 2.5 * instances,
      meets: targets.every(({ meets }) => meets),
      targets,
      injected: 400,
      completed: 400,
      restsOn: 'whole run',
      run: {
        figures: figures as PlanOption['run']['figures'],
        arrivalsPerS: 40,
        requestsPerS: 38,
        outputTokensPerS: 9800,
        delayP99Ms: 4,
        hitRate: 0,
        hitsByTier: { hbm: 0 },
        preemptions: 0,
        busyShare: 0.98,
        kvShare: 0.1,
        unservable: 0,
        inFlightHalf: 140,
        inFlightEnd: 143,
      },
    };
  };
  const choice = option(2, 48);
  const check = (change: string, ttftMs: number): PlanAnswer['checks'][number] => {
    const { meets, targets } = option(2, ttftMs);
    return { change, meets, targets };
  };
  const answer: PlanAnswer = {
    schema: 'tierkv.plan/1',
    question,
    choice,
    checks: [
      check('seed 43', 47),
      check('seed 44', 50),
      check('10 % more requests', 55),
      check('time by roofline', 31),
    ],
    next: {
      meetsAt: 1.5,
      failsAt: 2,
      figure: 'ttft_p99',
      cause: 'prompts',
      text: 'at 2 times the load ttft_p99 fails first',
    },
    others: [option(3, 40)],
    cheaper: [option(1, 90)],
    beaten: undefined,
    closest: undefined,
    unknown: undefined,
    excluded: [],
    bySize: [],
    notes: ['no two requests share a prefix'],
    deploymentFile: 'version: 1',
    simulateWords: '--model qwen3-14b',
    effort: { simulations: 26, requestsEach: 400, isWhole: true },
  };
  return planReport(answer, command);
}
