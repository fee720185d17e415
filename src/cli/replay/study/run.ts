/**
 * The study of a command line: what was asked for, checked before anything runs, then run, drawn and shown.
 */

import { configError } from '../../../runtime/errors.ts';
import { renderSvg, requireWritableTarget, startProgressBar, writeText } from '../../output/index.ts';
import { maxBlocks } from '../tiers/index.ts';
import { comparePolicies, type Study } from './compare.ts';
import { blocksOf, parseCapacities, parsePolicies, type StudyOptions, singlePolicy } from './options.ts';
import { isMooncake, readChains } from './read.ts';
import { studyChart } from './show.ts';

/** The options of a replay that a study takes, as commander hands them over. */
export interface RawStudyOptions {
  readonly policy?: string;
  readonly plot?: string;
  readonly hbmBlocks: string;
  readonly ddrBlocks: string;
  readonly nvmeBlocks: string;
  readonly blockTokens: string;
  readonly requests?: string;
  readonly json?: string;
  readonly log?: string;
  readonly inputs?: string;
}

export interface StudyRun extends StudyOptions {
  /** Absent: what the trace's format usually has. */
  readonly blockTokens?: number;
  readonly requests?: number;
  readonly plotPath?: string;
  readonly jsonPath?: string;
  /** Whether it is of one policy at one capacity, for which a replay can run as well. */
  readonly single: boolean;
  /** The option that needs a replay, if one does. */
  readonly needsReplay?: '--log' | '--inputs';
}

/**
 * @param raw `blockTokens` as given, '' where the user gave none
 * @returns undefined where no study is asked for
 * @throws TKV_CONFIG naming the option
 */
export function parseStudyRun(raw: RawStudyOptions): StudyRun | undefined {
  const { policy, plot, hbmBlocks, json, requests, blockTokens } = raw;
  if (policy === undefined) {
    if (plot !== undefined) throw configError('--plot', 'has nothing to draw', 'Add --policy all.');
    if (!hbmBlocks.includes(',')) return undefined;
    throw configError('--hbm-blocks', `is the list ${hbmBlocks}`, 'Add --policy all to compare capacities.');
  }
  const policies = parsePolicies(policy);
  const needsReplay = raw.log !== undefined ? '--log' : raw.inputs !== undefined ? '--inputs' : undefined;
  // `all` is as many blocks as the trace has: where nothing is evicted, there is nothing to compare.
  if ([hbmBlocks, raw.ddrBlocks, raw.nvmeBlocks].some((blocks) => blocks.trim() === 'all')) {
    throw configError(
      '--policy',
      'compares nothing where a tier holds all blocks',
      'Give each tier a number.',
    );
  }
  const capacities = parseCapacities(hbmBlocks, maxBlocks);
  if (plot !== undefined) requireWritableTarget(plot);
  if (json !== undefined) requireWritableTarget(json);
  return {
    policies,
    capacities,
    lower: [
      blocksOf('--ddr-blocks', raw.ddrBlocks, 0, maxBlocks),
      blocksOf('--nvme-blocks', raw.nvmeBlocks, 0, maxBlocks),
    ],
    single: singlePolicy(policy) !== undefined && capacities.length === 1,
    ...(blockTokens === '' ? {} : { blockTokens: blocksOf('--block-tokens', blockTokens, 1) }),
    ...(requests === undefined ? {} : { requests: blocksOf('--requests', requests, 1) }),
    ...(plot === undefined ? {} : { plotPath: plot }),
    ...(json === undefined ? {} : { jsonPath: json }),
    ...(needsReplay === undefined ? {} : { needsReplay }),
  };
}

/**
 * Whether a replay of the trace runs beside the table.
 * @throws TKV_CONFIG for an option that needs a replay where there is none
 */
export function movesBytes(tracePath: string, run: StudyRun): boolean {
  if (run.single && isMooncake(tracePath)) return true;
  if (run.needsReplay === undefined) return false;
  const remedy = `Leave ${run.needsReplay} out, or name one policy and one capacity.`;
  throw configError(run.needsReplay, 'needs a replay, and this is a table of policies alone', remedy);
}

/** Reads, runs and draws. @throws the signal's reason after a stop */
export async function runStudy(tracePath: string, run: StudyRun, signal: AbortSignal): Promise<Study> {
  const trace = readChains(tracePath, run.blockTokens, run.requests);
  const study = await compared();
  if (run.plotPath !== undefined) writeText(run.plotPath, await renderSvg(studyChart(tracePath, study)));
  return study;

  async function compared(): Promise<Study> {
    using bar = startProgressBar('requests');
    return await comparePolicies(trace, run, {
      signal,
      progress: (share, done, note) => bar.update({ share, done, note }),
    });
  }
}
