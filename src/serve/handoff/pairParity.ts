/**
 * Parity of a pair: two runtimes serve for real, the log of each is decided again, and the simulator
 * serves the same traffic with a prefill and a decode instance and the hand-offs as a rehearsal measured them.
 */

import fs from 'node:fs';
import path from 'node:path';
import { watchMachine } from '../../io/machineLoad.ts';
import type { VegaLiteSpec } from '../../io/printing/chart.ts';
import { configError } from '../../runtime/errors.ts';
import { resolveConfig } from '../../runtime/manager/config.ts';
import type { HandoffConfig } from '../../sim/cluster/handoffs.ts';
import { PolicyControlPlane } from '../../sim/control/plane.ts';
import { newSimulation } from '../../sim/description/deployment.ts';
import { fitHandoffs, type HandoffFit } from '../../sim/fitting/handoffFit.ts';
import { SchedulerEngine } from '../../sim/instance/schedulerEngine.ts';
import type { LatencyModel } from '../../sim/latency/latencyModel.ts';
import { summarize } from '../../sim/metrics/statistics.ts';
import {
  compareHits,
  compareLatencies,
  compareLinks,
  type HandoffComparison,
  type LinkComparison,
  type ParityReport,
  parityChart,
} from '../../studies/parity/comparison.ts';
import {
  type ExactReplay,
  type KnownLinks,
  readLinks,
  rehearsalTiers,
  rehearsalTraffic,
  replayExactly,
} from '../../studies/parity/links.ts';
import { RunObserver } from '../../studies/parity/observer.ts';
import {
  countJobs,
  engineOf,
  linksOf,
  type ParityListener,
  type ParityOptions,
  rehearsal,
  runnersOf,
  type ServedTwice,
  servedBy,
  standInConfig,
  stepsOnly,
} from '../../studies/parity/run.ts';
import type { RunnerJob, ServedRequest, ServedTraffic } from '../../studies/parity/traffic.ts';
import { askedRows, sizeOption } from '../../studies/replay/sizedTiers.ts';
import { type PairRun, runPair, type Side, sides } from './pair.ts';
import type { HandoffEnd } from './receiver.ts';

type BySide<T> = Readonly<Record<Side, T>>;

/** @throws TKV_CONFIG without host memory, into which blocks come */
export async function runPairParity(
  options: ParityOptions,
  scratch: string,
  listener: ParityListener,
): Promise<{ report: ParityReport; chart: VegaLiteSpec; served: ServedTwice }> {
  requireHostMemory(options);
  const started = performance.now();
  const { signal } = listener;
  const { linksPath, layout, traffic } = options;
  const other = rehearsalTraffic(layout.blockTokens);
  const progress = countJobs(listener, linksPath === undefined ? [other, other, traffic] : [other, traffic]);
  const [ofRehearsal, ofRun] = progress.slice(-2);
  const known =
    linksPath === undefined
      ? linksOf(options, [
          await rehearsal('before', options, runnersOf(options), scratch, listener, progress[0]),
        ])
      : readLinks(linksPath);
  listener.stage('measuring the hand-offs in a rehearsal');
  const rehearsed = await serve(options, { name: 'rehearsal', traffic: other, isRehearsal: true }, scratch, {
    signal,
    notice: () => {},
    progress: ofRehearsal,
  });
  const fit = fitHandoffs(rehearsed.run.handoffs);
  listener.stage('serving');
  const loadOfMachine = watchMachine();
  const { run, logPaths } = await serve(options, { name: 'run', traffic, isRehearsal: false }, scratch, {
    ...listener,
    progress: ofRun,
  });
  const machine = loadOfMachine();
  listener.stage('replaying what was recorded');
  const exact: BySide<ExactReplay> = {
    prefill: await replayExactly(logPaths.prefill, signal),
    decode: await replayExactly(logPaths.decode, signal),
  };
  listener.stage('predicting');
  const links = { ...known, stepOverheadUs: known.stepOverheadUs || rehearsed.run.stepOverheadUs.decode };
  const predicted = predictPair(exact, options, options.traffic, links, fit);
  const transfers = (side: Side): [string, LinkComparison][] =>
    Object.entries(
      compareLinks(exact[side].observed, predicted.observed[side], links.profiles, exact[side].config),
    ).map(([name, compared]) => [`${side} ${name}`, compared]);
  const report: ParityReport = {
    schema: 'tierkv.parity/1',
    runner: 'a pair of stand-ins',
    adapter: run.adapter,
    latencyModel: options.latencyModel,
    links,
    requests: run.requests.length,
    exact: together(exact),
    hits: compareHits(exact.prefill.observed, predicted.observed.prefill),
    transfers: Object.fromEntries(sides.flatMap(transfers)),
    latencies: compareLatencies(run.requests, predicted.requests),
    handoffs: compareHandoffs(run.handoffs, predicted.handoffs, fit),
    wrongBlocks: run.wrongBlocks,
    interruptedSteps: run.interruptedSteps,
    machine,
    wallSeconds: (performance.now() - started) / 1000,
  };
  const chart = parityChart(`Parity of a pair on ${run.adapter.name}`, [
    { name: 'real', requests: run.requests, observed: exact.prefill.observed },
    { name: 'predicted', requests: predicted.requests, observed: predicted.observed.prefill },
  ]);
  return { report, chart, served: { real: run.requests, predicted: predicted.requests } };
}

/** @throws TKV_CONFIG naming the option of host memory, where the run has it off */
function requireHostMemory({ tiers }: ParityOptions): void {
  const inMemory = askedRows().filter(({ isHostMemory }) => isHostMemory === true);
  const [{ name }] = inMemory;
  if (tiers.some((tier) => inMemory.some((row) => row.name === tier.name))) return;
  const option = sizeOption(name);
  throw configError(
    option,
    (called) => `is 0, and with ${called('pair')} blocks come into host memory`,
    'Give it some.',
  );
}

interface ServedJob {
  /** Name of its directories and logs. */
  readonly name: string;
  readonly traffic: ServedTraffic;
  readonly isRehearsal: boolean;
}

/** Both sides have the tiers of the options, each its own. The log of the run lies beside the one that is asked for. */
async function serve(
  options: ParityOptions,
  { name, traffic, isRehearsal }: ServedJob,
  scratch: string,
  listener: Pick<RunnerJob, 'signal' | 'notice' | 'progress'>,
): Promise<{ readonly run: PairRun; readonly logPaths: BySide<string> }> {
  const { layout, tiers } = options;
  const used = isRehearsal ? rehearsalTiers(tiers, layout.blockTokens) : tiers;
  const config = (side: Side) => {
    const dir = path.join(scratch, `${name}-${side}`);
    fs.mkdirSync(dir);
    return standInConfig(options, dir, used);
  };
  const logPath = (side: Side): string =>
    isRehearsal || options.logPath === undefined
      ? path.join(scratch, `${name}-${side}.log`)
      : `${options.logPath}.${side}`;
  const logPaths = { prefill: logPath('prefill'), decode: logPath('decode') };
  const run = await runPair(
    { prefill: config('prefill'), decode: config('decode') },
    {
      ...listener,
      traffic,
      logPaths,
      fetches: isRehearsal ? 'whole' : 'early',
    },
  );
  return { run, logPaths };
}

interface PairPrediction {
  readonly requests: readonly ServedRequest[];
  readonly observed: BySide<RunObserver>;
  readonly handoffs: { readonly count: number; readonly blocks: number; readonly bytes: number };
}

function predictPair(
  recorded: BySide<ExactReplay>,
  { latency }: { readonly latency: LatencyModel },
  traffic: ServedTraffic,
  { profiles, stepOverheadUs }: KnownLinks,
  fit: HandoffFit,
): PairPrediction {
  const observed = {
    prefill: new RunObserver(resolveConfig(recorded.prefill.config).tiers.map(({ tier }) => tier)),
    decode: new RunObserver(resolveConfig(recorded.decode.config).tiers.map(({ tier }) => tier)),
  };
  const { scheduler } = recorded.prefill;
  const { maxModelTokens, maxSequences, preemption, blockTokens } = scheduler;
  let blocks = 0;
  const simulation = newSimulation({
    deployment: {
      pools: sides.map((side) => ({
        configId: side,
        role: side,
        model: '',
        replicas: 1,
        engine: engineOf(recorded[side], profiles),
        latency: stepsOnly(latency, stepOverheadUs),
        limits: { maxModelTokens, maxSequences, preemption },
      })),
    },
    workload: traffic.open(),
    control: new PolicyControlPlane(
      { decider: { policy: 'always' } },
      { key: 0n, blockTokens, maxSequences },
    ),
    options: {
      horizonUs: Infinity,
      admissionLatencyUs: 0,
      routingLatencyUs: 0,
      lastTokenInContext: true,
      handoff: linkOf(fit),
    },
    observer: {
      handoffSent: (sent) => {
        blocks += sent.blocks;
      },
    },
    makeEngine: ({ engine, configId }, timeline, woken, share) => {
      const eye = observed[configId as Side];
      const made = new SchedulerEngine(engine, timeline, woken, eye, share);
      made.manager.observe(eye.finds);
      return made;
    },
  });
  const requests = servedBy(simulation);
  const { completed, bytes } = simulation.handoffs.counters;
  return { requests, observed, handoffs: { count: completed, blocks, bytes } };
}

function linkOf({ handoffs: _, error: __, ...link }: HandoffFit): HandoffConfig {
  return link;
}

function compareHandoffs(
  real: readonly HandoffEnd[],
  predicted: PairPrediction['handoffs'],
  link: HandoffFit,
): HandoffComparison {
  const ends: Record<string, number> = {};
  for (const { outcome } of real) ends[outcome] = (ends[outcome] ?? 0) + 1;
  const sum = (of: (end: HandoffEnd) => number): number => real.reduce((all, end) => all + of(end), 0);
  const whole = real.filter(({ taken }) => taken > 0).map(({ ms }) => 1000 * ms);
  return {
    link,
    ends,
    count: { real: real.length, predicted: predicted.count },
    blocks: { real: sum(({ taken }) => taken), predicted: predicted.blocks },
    bytes: { real: sum(({ bytes }) => bytes), predicted: predicted.bytes },
    timesUs: summarize(Float64Array.from(whole)),
  };
}

/** Both logs as one: they are identical where each is. */
function together(exact: BySide<ExactReplay>): ParityReport['exact'] {
  const both = sides.map((side) => exact[side]);
  return {
    identical: both.every(({ identical }) => identical),
    lines: both[0].lines + both[1].lines,
    bytes: both[0].bytes + both[1].bytes,
    firstDifference: both.find(({ identical }) => !identical)?.firstDifference ?? null,
  };
}
