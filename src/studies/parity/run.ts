/** The run behind `tierkv parity`: serve for real, replay what was recorded, predict, compare. */

import fs from 'node:fs';
import path from 'node:path';
import type { TierOptions } from '../../backends/tierRows.ts';
import { watchMachine } from '../../io/machineLoad.ts';
import type { VegaLiteSpec } from '../../io/printing/chart.ts';
import {
  defaultEviction,
  type KVLayout,
  type ManagerConfig,
  type SchedulerHead,
  tierName,
} from '../../runtime/index.ts';
import { resolveConfig } from '../../runtime/manager/config.ts';
import type { Simulation } from '../../sim/cluster/simulation.ts';
import { PolicyControlPlane } from '../../sim/control/plane.ts';
import { newSimulation } from '../../sim/description/deployment.ts';
import type { EngineConfig, LowerTier } from '../../sim/instance/engine.ts';
import { SchedulerEngine } from '../../sim/instance/schedulerEngine.ts';
import type { LatencyModel } from '../../sim/latency/latencyModel.ts';
import type { LinkProfiles } from '../../sim/links/modeledDriver.ts';
import { Status } from '../../sim/metrics/requestTable.ts';
import { lowerTiers, type SizedTier, tierOptionsOf } from '../replay/sizedTiers.ts';
import {
  compareHits,
  compareLatencies,
  compareLinks,
  type ParityReport,
  parityChart,
  type Sides,
} from './comparison.ts';
import type { EngineSetting, ParityEngine } from './engine.ts';
import {
  type KnownLinks,
  linksOfRehearsals,
  type Rehearsal,
  readLinks,
  rehearsalTiers,
  rehearsalTraffic,
  rehearse,
  replayExactly,
} from './links.ts';
import { RunObserver } from './observer.ts';
import { StandIn, type StandInConfig } from './standIn.ts';
import {
  type ParityRunner,
  type RunnerJob,
  requestKey,
  type ServedRequest,
  type ServedTraffic,
} from './traffic.ts';

export interface ParityListener extends Pick<RunnerJob, 'signal' | 'notice'> {
  /** A part of the run begins, for people. */
  stage(name: string): void;
  /** Requests that have ended, rehearsals included, and how many there are to be; 0 where that is not known. */
  progress(done: number, expected: number): void;
}

/** Where a job stands among the jobs that a run serves one after the other. */
export function countJobs(listener: ParityListener, jobs: readonly ServedTraffic[]): RunnerJob['progress'][] {
  const total = jobs.reduce((sum, { expected }) => sum + expected, 0);
  return jobs.map((_, i) => {
    const before = jobs.slice(0, i).reduce((sum, { expected }) => sum + expected, 0);
    return (done) => listener.progress(before + done, total);
  });
}

export interface ParityOptions extends Omit<EngineSetting, 'dir' | 'tierBytes' | 'tierOptions'> {
  readonly traffic: ServedTraffic;
  readonly latency: LatencyModel;
  readonly latencyModel: string;
  readonly layout: KVLayout;
  /** From fast to slow, the first is the top tier. ParityTiers that lie in a directory get one of the run's own. */
  readonly tiers: readonly SizedTier<number>[];
  readonly linksPath: string | undefined;
  readonly logPath: string | undefined;
}

type ParityTiers = ParityOptions['tiers'];

/** The runtime of the options with a stand-in for the model. @param dir where the disk tier lies */
export function standInConfig(options: ParityOptions, dir: string, tiers: ParityTiers): StandInConfig {
  const { layout, eviction, scheduler, latency, adapter } = options;
  return {
    latency,
    scheduler,
    runtime: {
      layout,
      model: 'stand-in@1',
      secretKey: new Uint8Array(32).fill(1),
      ...runtimeTiers(tiers, dir, layout.blockBytes),
      eviction: { policy: eviction },
      offloadThreshold: 1,
      leavingShare: 1, // what is dropped for want of speed depends on stalls, which are not predicted
      ...(adapter === undefined ? {} : { adapter }),
    },
  };
}

function runtimeTiers(tiers: ParityTiers, dir: string, blockBytes: number): TierOptions {
  const placed = tiers.map((tier) => (tier.place === undefined ? { ...tier, place: dir } : tier));
  return tierOptionsOf(placed, blockBytes);
}

/** Who serves on these tiers, with its disk tier in `dir`. */
type Runners = (dir: string, tiers: ParityTiers) => ParityRunner;

/** The engine's; without one the stand-in's. */
export function runnersOf(options: ParityOptions, engine?: ParityEngine): Runners {
  if (engine === undefined) return (dir, tiers) => new StandIn(standInConfig(options, dir, tiers));
  const { eviction, scheduler, adapter } = options;
  const { blockBytes } = engine.layout;
  return (dir, tiers) => {
    const bytes = tiers.map(({ name, blocks }) => [name, blocks * blockBytes]);
    const none = lowerTiers().map((name) => [name, 0]);
    const tierBytes = Object.fromEntries([...none, ...bytes]);
    const tierOptions = runtimeTiers(tiers, dir, blockBytes);
    return engine.runner({ tierBytes, tierOptions, eviction, scheduler, adapter, dir });
  };
}

/**
 * @param scratch a directory for files of the run
 * @throws {TierKVError} for a device, memory or a directory that is not to be had
 */
export async function runParity(
  options: ParityOptions,
  runners: Runners,
  scratch: string,
  listener: ParityListener,
): Promise<{ report: ParityReport; chart: VegaLiteSpec; served: ServedTwice }> {
  const started = performance.now();
  const { signal } = listener;
  const { linksPath, tiers } = options;
  const given = linksPath === undefined ? undefined : readLinks(linksPath);
  const rehearses = given === undefined && tiers.length > 1;
  const other = rehearses ? [rehearsalTraffic(options.layout.blockTokens)] : [];
  const progress = countJobs(listener, [...other, options.traffic, ...other]);
  const before = rehearses
    ? [await rehearsal('before', options, runners, scratch, listener, progress[0])]
    : [];
  const runner = runners(scratch, tiers);
  listener.stage('serving');
  const logPath = options.logPath ?? path.join(scratch, 'parity.log');
  const loadOfMachine = watchMachine();
  const run = await runner.run({
    ...listener,
    progress: progress[other.length],
    traffic: options.traffic,
    logPath,
  });
  const machine = loadOfMachine();
  const after = rehearses ? [await rehearsal('after', options, runners, scratch, listener, progress[2])] : [];
  const links = given ?? linksOf(options, [...before, ...after]);
  listener.stage('replaying what was recorded');
  const exact = await replayExactly(logPath, signal);
  listener.stage('predicting');
  const predicted = predict(exact, options.traffic, run.latency, links);
  const { identical, lines, bytes, firstDifference, observed } = exact;
  const report: ParityReport = {
    schema: 'tierkv.parity/1',
    runner: runner.name,
    adapter: run.adapter,
    latencyModel: run.latencyName ?? options.latencyModel,
    links,
    requests: run.requests.length,
    exact: { identical, lines, bytes, firstDifference },
    hits: compareHits(observed, predicted.observed),
    transfers: compareLinks(observed, predicted.observed, links.profiles, exact.config),
    latencies: compareLatencies(run.requests, predicted.requests),
    wrongBlocks: run.wrongBlocks,
    interruptedSteps: run.interruptedSteps,
    machine,
    wallSeconds: (performance.now() - started) / 1000,
  };
  const chart = parityChart(`Parity on ${run.adapter.name}`, [
    { name: 'real', requests: run.requests, observed },
    { name: 'predicted', ...predicted },
  ]);
  return { report, chart, served: { real: run.requests, predicted: predicted.requests } };
}

/** The requests of both runs, each in its own time. */
export type ServedTwice = Sides<readonly ServedRequest[]>;

/** Other traffic on tiers that overflow. */
export async function rehearsal(
  when: string,
  options: ParityOptions,
  runners: Runners,
  scratch: string,
  listener: ParityListener,
  progress: RunnerJob['progress'],
): Promise<Rehearsal> {
  listener.stage(`measuring the links in a rehearsal ${when} the run`);
  const dir = path.join(scratch, when);
  fs.mkdirSync(dir);
  const { layout } = options;
  const runner = runners(dir, rehearsalTiers(options.tiers, layout.blockTokens));
  return await rehearse(runner, layout, dir, { signal: listener.signal, notice: () => {}, progress });
}

export function linksOf({ layout }: ParityOptions, rehearsals: readonly Rehearsal[]): KnownLinks {
  if (rehearsals.length === 0) return { profiles: {}, origin: 'none', stepOverheadUs: 0 };
  return linksOfRehearsals(rehearsals, layout.blockBytes);
}

// The second half of parity: the simulator serves the same traffic on the same configuration, free. It knows
// the links as they were measured and the times of steps as the runner gives them, and nothing of the run.

interface RunPrediction {
  readonly requests: readonly ServedRequest[];
  readonly observed: RunObserver;
}

interface Recorded {
  readonly config: ManagerConfig;
  readonly scheduler: SchedulerHead;
}

export function engineOf({ config, scheduler: head }: Recorded, links: LinkProfiles): EngineConfig {
  const { blockTokens, sizeClass, ...scheduler } = head;
  const blockBytes = config.unitBytes[sizeClass];
  const blocks = (bytes: number): number => Math.floor(bytes / blockBytes);
  const [top, ...lower] = resolveConfig(config).tiers;
  const lowerTiers = lower.map(({ tier, capacityBytes }): LowerTier => {
    return { tier: tierName(tier), blocks: blocks(capacityBytes) };
  });
  return {
    blockTokens,
    blockBytes,
    topBlocks: blocks(top.capacityBytes),
    lowerTiers,
    loads: { kind: 'deferred', links, prefetch: false },
    computeUsPerToken: Infinity, // the runtime loads whatever is there
    eviction: config.eviction ?? defaultEviction,
    offloadThreshold: config.offloadThreshold ?? 1,
    lowerCopy: config.lowerCopy ?? 'keep',
    scheduler,
    manager: config,
  };
}

/** @returns every request, in order of arrival */
function predict(
  recorded: Recorded,
  traffic: ServedTraffic,
  latency: LatencyModel,
  { profiles, stepOverheadUs }: KnownLinks,
): RunPrediction {
  const { config, scheduler } = recorded;
  const observed = new RunObserver(resolveConfig(config).tiers.map(({ tier }) => tier));
  const { maxModelTokens, maxSequences, preemption, blockTokens } = scheduler;
  const simulation = newSimulation({
    deployment: {
      pools: [
        {
          configId: 'parity',
          role: 'monolithic',
          model: '',
          replicas: 1,
          engine: engineOf(recorded, profiles),
          latency: stepsOnly(latency, stepOverheadUs),
          limits: { maxModelTokens, maxSequences, preemption },
        },
      ],
    },
    workload: traffic.open(),
    control: new PolicyControlPlane({}, { key: 0n, blockTokens, maxSequences }),
    options: {
      horizonUs: Infinity,
      admissionLatencyUs: 0,
      routingLatencyUs: 0,
      lastTokenInContext: true,
      handoff: { baseLatencyUs: 0, bandwidthBytesPerS: 1e9 },
    },
    makeEngine: ({ engine }, timeline, woken, share) => {
      const made = new SchedulerEngine(engine, timeline, woken, observed, share);
      made.manager.observe(observed.finds);
      return made;
    },
  });
  return { requests: servedBy(simulation), observed };
}

/** Runs it, and says what became of its requests. @returns the complete ones, in order of arrival */
export function servedBy(simulation: Simulation): ServedRequest[] {
  simulation.run();
  simulation.close();
  const { table } = simulation;
  const requests: ServedRequest[] = [];
  for (let row = 0; row < table.size; row++) {
    if (table.status[row] !== Status.COMPLETED) continue;
    const arrivalUs = table.arrivalUs[row];
    requests.push({
      key: requestKey(table.idOf(row), table.sessionOf(row), table.round[row]),
      arrivalUs,
      firstTokenUs: arrivalUs + table.firstTokenUs[row],
      lastTokenUs: arrivalUs + table.e2eUs[row],
      outputTokens: table.generatedTokens[row],
    });
  }
  return requests;
}

/** The runner measures from the scheduler's door: its times leave out what lies before and behind it. */
export function stepsOnly(latency: LatencyModel, overheadUs: number): LatencyModel {
  return {
    backend: latency.backend,
    stepTimeUs: (batch) => latency.stepTimeUs(batch) + overheadUs,
    explain: (batch) => latency.explain(batch),
    queueingTimeUs: () => 0,
    outputTokenProcessingUs: 0,
    postDecodeOverheadUs: 0,
  };
}
