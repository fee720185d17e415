/** The run behind `tierkv parity`: serve for real, replay what was recorded, predict, compare. */

import fs from 'node:fs';
import path from 'node:path';
import type { ParityEngine } from '../../parity/engine.ts';
import {
  type ParityRunner,
  type RunnerJob,
  requestKey,
  type ServedRequest,
  type ServedTraffic,
} from '../../parity/traffic.ts';
import type { VegaLiteSpec } from '../../printing/chart.ts';
import { defaultEviction, type ManagerConfig, type SchedulerHead, tierName } from '../../runtime/index.ts';
import { resolveConfig } from '../../runtime/manager/config.ts';
import type { Simulation } from '../../sim/cluster/simulation.ts';
import { PolicyControlPlane } from '../../sim/control/plane.ts';
import { newSimulation } from '../../sim/description/deployment.ts';
import type { EngineConfig, LowerTier } from '../../sim/instance/engine.ts';
import { SchedulerEngine } from '../../sim/instance/schedulerEngine.ts';
import type { LatencyModel } from '../../sim/latency/latencyModel.ts';
import type { LinkProfiles } from '../../sim/links/modeledDriver.ts';
import { Status } from '../../sim/metrics/requestTable.ts';
import type { ParityOptions } from './command.ts';
import {
  type KnownLinks,
  linksOfRehearsals,
  type Rehearsal,
  readLinks,
  rehearsalBlocks,
  rehearse,
  replayExactly,
} from './links.ts';
import { RunObserver } from './observer.ts';

import {
  compareHits,
  compareLatencies,
  compareLinks,
  type ParityReport,
  parityChart,
  type Sides,
} from './report.ts';
import { StandIn, type StandInConfig } from './standIn.ts';

export interface ParityListener extends Pick<RunnerJob, 'signal' | 'notice' | 'progress'> {
  /** A part of the run begins, for people. */
  stage(name: string): void;
}

type TierBytes = ParityOptions['tierBytes'];

/** The runtime of the options with a stand-in for the model. @param dir where the disk tier lies */
export function standInConfig(options: ParityOptions, dir: string, tierBytes: TierBytes): StandInConfig {
  const { layout, eviction, scheduler, latency, adapter } = options;
  const { hbm, ddr, nvme } = tierBytes;
  return {
    latency,
    scheduler,
    runtime: {
      layout,
      model: 'stand-in@1',
      secretKey: new Uint8Array(32).fill(1),
      hbmBytes: hbm,
      ddrBytes: ddr,
      ...(nvme === 0 ? {} : { nvme: { dir, bytes: nvme, restart: 'empty' } }),
      eviction: { policy: eviction },
      offloadThreshold: 1,
      leavingShare: 1, // what is dropped for want of speed depends on stalls, which are not predicted
      ...(adapter === undefined ? {} : { adapter }),
    },
  };
}

/** Who serves on tiers of these sizes, with its disk tier in `dir`. */
export type Runners = (dir: string, tierBytes: TierBytes) => ParityRunner;

/** The engine's; without one the stand-in's. */
export function runnersOf(options: ParityOptions, engine?: ParityEngine): Runners {
  if (engine === undefined) return (dir, tierBytes) => new StandIn(standInConfig(options, dir, tierBytes));
  const { eviction, scheduler, adapter } = options;
  return (dir, tierBytes) => engine.runner({ tierBytes, eviction, scheduler, adapter, dir });
}

/** The same tiers, no larger than a rehearsal wants them. */
export function rehearsalBytes({ tierBytes, layout: { blockBytes, blockTokens } }: ParityOptions): TierBytes {
  const { hbm, ddr, nvme } = tierBytes;
  const run = { hbm: hbm / blockBytes, ddr: ddr / blockBytes, nvme: nvme / blockBytes };
  const blocks = rehearsalBlocks(run, blockTokens);
  return { hbm: blocks.hbm * blockBytes, ddr: blocks.ddr * blockBytes, nvme: blocks.nvme * blockBytes };
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
  const { linksPath, tierBytes } = options;
  const given = linksPath === undefined ? undefined : readLinks(linksPath);
  const rehearses = given === undefined && tierBytes.ddr + tierBytes.nvme > 0;
  const before = rehearses ? await rehearsal('before', options, runners, scratch, listener) : [];
  const runner = runners(scratch, tierBytes);
  listener.stage('serving');
  const logPath = options.logPath ?? path.join(scratch, 'parity.log');
  const run = await runner.run({ ...listener, traffic: options.traffic, logPath });
  const after = rehearses ? await rehearsal('after', options, runners, scratch, listener) : [];
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

/** Other traffic on tiers that overflow; as a list, to be joined with others. */
export async function rehearsal(
  when: string,
  options: ParityOptions,
  runners: Runners,
  scratch: string,
  listener: ParityListener,
): Promise<Rehearsal[]> {
  listener.stage(`measuring the links in a rehearsal ${when} the run`);
  const dir = path.join(scratch, when);
  fs.mkdirSync(dir);
  const runner = runners(dir, rehearsalBytes(options));
  return [await rehearse(runner, options.layout, dir, { ...listener, notice: () => {} })];
}

export function linksOf({ layout }: ParityOptions, rehearsals: readonly Rehearsal[]): KnownLinks {
  if (rehearsals.length === 0) return { profiles: {}, origin: 'none', stepOverheadUs: 0 };
  return linksOfRehearsals(rehearsals, layout.blockBytes);
}

// The second half of parity: the simulator serves the same traffic on the same configuration, free. It knows
// the links as they were measured and the times of steps as the runner gives them, and nothing of the run.

export interface RunPrediction {
  readonly requests: readonly ServedRequest[];
  readonly observed: RunObserver;
}

export interface Recorded {
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
    hbmBlocks: blocks(top.capacityBytes),
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
export function predict(
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
    makeEngine: ({ engine }, timeline, woken, share) =>
      new SchedulerEngine(engine, timeline, woken, observed, share),
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
