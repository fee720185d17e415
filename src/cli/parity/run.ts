/** The run behind `tierkv parity`: serve for real, replay what was recorded, predict, compare. */

import fs from 'node:fs';
import path from 'node:path';
import type { VegaLiteSpec } from '../output/index.ts';
import { replayExactly } from './exactReplay.ts';
import {
  type KnownLinks,
  linksOfRehearsals,
  type Rehearsal,
  readLinks,
  rehearsalBlocks,
  rehearse,
} from './links.ts';
import type { ParityOptions } from './options.ts';
import { predict } from './prediction.ts';
import {
  compareHits,
  compareLatencies,
  compareLinks,
  type ParityReport,
  parityChart,
} from './report/index.ts';
import type { ParityEngine } from './serving/engine.ts';
import type { ParityRunner, RunnerJob } from './serving/runner.ts';
import { StandIn } from './serving/standIn.ts';

export interface ParityListener extends Pick<RunnerJob, 'signal' | 'notice' | 'progress'> {
  /** A part of the run begins, for people. */
  stage(name: string): void;
}

type TierBytes = ParityOptions['tierBytes'];

/** The runtime of the options with a stand-in for the model. @param dir where the disk tier lies */
function standInOf(options: ParityOptions, dir: string, tierBytes: TierBytes): ParityRunner {
  const { layout, eviction, scheduler, latency, adapter } = options;
  const { hbm, ddr, nvme } = tierBytes;
  return new StandIn({
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
      leavingShare: 1, // what is dropped for want of speed depends on stalls, which nobody predicts
      ...(adapter === undefined ? {} : { adapter }),
    },
  });
}

/** Who serves on tiers of these sizes, with its disk tier in `dir`. */
export type Runners = (dir: string, tierBytes: TierBytes) => ParityRunner;

/** The engine's, or the stand-in's where there is none. */
export function runnersOf(options: ParityOptions, engine?: ParityEngine): Runners {
  if (engine === undefined) return (dir, tierBytes) => standInOf(options, dir, tierBytes);
  const { eviction, scheduler, adapter } = options;
  return (dir, tierBytes) => engine.runner({ tierBytes, eviction, scheduler, adapter, dir });
}

/** The same tiers, no larger than a rehearsal wants them. */
function rehearsalBytes({ tierBytes, layout: { blockBytes, blockTokens } }: ParityOptions): TierBytes {
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
): Promise<{ report: ParityReport; chart: VegaLiteSpec }> {
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
  return { report, chart };
}

/** Other traffic on tiers that overflow; as a list, to be joined with others. */
async function rehearsal(
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

function linksOf({ layout }: ParityOptions, rehearsals: readonly Rehearsal[]): KnownLinks {
  if (rehearsals.length === 0) return { profiles: {}, origin: 'none', stepOverheadUs: 0 };
  return linksOfRehearsals(rehearsals, layout.blockBytes);
}
