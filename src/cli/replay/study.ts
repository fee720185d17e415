/** The study of a command line: what was asked for, checked before anything runs, then run, drawn and shown. */

import { requireWritableTargets, writeText } from '../../io/files/results.ts';
import { renderSvg, type VegaLiteSpec } from '../../io/printing/chart.ts';
import { startProgressBar } from '../../io/printing/progress.ts';
import { formatCount, formatCounted, renderTable } from '../../io/printing/text.ts';
import { configError, nearestName, requireInteger } from '../../runtime/errors.ts';
import {
  defaultEviction,
  type EvictionChoice,
  evictionPolicyNames,
  resolvePolicy,
  tierTitle,
} from '../../runtime/index.ts';
import { withHints } from '../../studies/replay/hintedCache.ts';
import {
  askedRows,
  isAlwaysAsked,
  lowerTiers,
  maxBlocks,
  sizeOption,
} from '../../studies/replay/sizedTiers.ts';
import {
  comparePolicies,
  isMooncake,
  readChains,
  type Study,
  type StudyOptions,
} from '../../studies/replay/study.ts';
import { textOf } from '../tierOptions.ts';

/** Values of `--policy` besides the names of policies. */
const ALL = 'all';
const OPTIMUM = 'optimum';
/** It ranks by owner, which a trace does not name: it would be LRU. */
const NEEDS_OWNERS = 'priority';

/** @throws TKV_CONFIG for a name that is not known, with the nearest one */
function parsePolicies(text: string): readonly string[] {
  const words = text.split(',').map((word) => word.trim());
  const known = [...evictionPolicyNames, ALL, OPTIMUM];
  for (const word of words) {
    if (known.includes(word)) continue;
    const near = nearestName(word, known);
    const remedy = near === undefined ? `Known: ${known.join(', ')}.` : `Did you mean ${near}?`;
    throw configError('--eviction', `names ${JSON.stringify(word)}, which is not known`, remedy);
  }
  if (words.includes(ALL)) return evictionPolicyNames.filter((name) => name !== NEEDS_OWNERS);
  return [...new Set(words.filter((word) => word !== OPTIMUM))];
}

/** Whether the words name one policy, under which a replay can run. */
export function singlePolicy(text: string): EvictionChoice | undefined {
  return evictionPolicyNames.includes(text.trim()) ? resolvePolicy({ policy: text.trim() }) : undefined;
}

/** Capacities as a list. @throws TKV_CONFIG for one that must be a count of blocks */
function parseCapacities(option: string, text: string, most: number): readonly number[] {
  return [...new Set(text.split(',').map((word) => blocksOf(option, word, 1, most)))];
}

/** Accuracies as a list. @throws TKV_CONFIG for one that cannot be a share of right answers */
function parseAccuracies(text: string): readonly number[] {
  return text.split(',').map((word) => {
    const value = Number(word);
    if (word.trim() !== '' && value >= 0.5 && value <= 1) return value;
    throw configError(
      '--what-if-hints',
      `has ${JSON.stringify(word.trim())}, not an accuracy`,
      'Give shares of right answers from 0.5 (a coin) to 1, as 0.9,0.8.',
    );
  });
}

/** A count of blocks. @throws TKV_CONFIG naming the option */
function blocksOf(option: string, text: string, least: number, most?: number): number {
  if (/^\s*\d+\s*$/.test(text)) return requireInteger(option, Number(text), least, most);
  throw configError(
    option,
    `has ${JSON.stringify(text.trim())} for a number`,
    `Give it whole numbers from ${least} on.`,
  );
}

/** The options of a replay that a study takes, as commander hands them over. */
export interface RawStudyOptions {
  readonly policy?: string;
  readonly plot?: string;
  /** Accuracies of hints, separated by commas. */
  readonly whatIfHints?: string;
  /** Sizes of tiers, by the words of their options. */
  readonly [word: string]: string | boolean | undefined;
  readonly blockTokens: string;
  readonly requests?: string;
  readonly json?: string;
  readonly log?: string;
  readonly inputs?: string;
}

export interface StudyRun extends StudyOptions {
  /** Accuracies of hints whose worth is told, from 0.5 to 1. */
  readonly hints: readonly number[];
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
 * @param trace the file that is read, which no output may take the place of
 * @returns undefined where no study is asked for
 * @throws TKV_CONFIG naming the option
 */
export function parseStudyRun(raw: RawStudyOptions, trace?: string): StudyRun | undefined {
  const { plot, json, requests, blockTokens, whatIfHints } = raw;
  const hints = whatIfHints === undefined ? [] : parseAccuracies(whatIfHints);
  const policy = raw.policy ?? (whatIfHints === undefined ? undefined : defaultEviction.policy);
  const sizes = askedRows()
    .filter(isAlwaysAsked)
    .map(({ name, asked: { size } }) => [sizeOption(name), textOf(raw, size.option) ?? '0'] as const);
  const [[topOption, topText], ...lower] = sizes;
  if (policy === undefined) {
    if (plot !== undefined) throw configError('--plot', 'has nothing to draw', 'Add --eviction all.');
    if (!topText.includes(',')) return undefined;
    throw configError(topOption, `is the list ${topText}`, 'Add --eviction all to compare capacities.');
  }
  const policies = parsePolicies(policy);
  const needsReplay = raw.log !== undefined ? '--log' : raw.inputs !== undefined ? '--inputs' : undefined;
  // `all` is as many blocks as the trace has: where nothing is evicted, there is nothing to compare.
  if (sizes.some(([, blocks]) => blocks.trim() === 'all')) {
    throw configError(
      raw.policy === undefined ? '--what-if-hints' : '--eviction',
      'compares nothing where a tier holds all blocks',
      'Give each tier a number.',
    );
  }
  const capacities = parseCapacities(topOption, topText, maxBlocks);
  requireWritableTargets({ '--plot': plot, '--json': json }, { TRACE: trace });
  return {
    policies,
    capacities,
    lower: lower.map(([option, blocks]) => blocksOf(option, blocks, 0, maxBlocks)),
    hints,
    single: singlePolicy(policy) !== undefined && capacities.length === 1 && hints.length === 0,
    ...(blockTokens === '' ? {} : { blockTokens: blocksOf('--block-tokens', blockTokens, 1) }),
    ...(requests === undefined ? {} : { requests: blocksOf('--num-requests', requests, 1) }),
    ...(plot === undefined ? {} : { plotPath: plot }),
    ...(json === undefined ? {} : { jsonPath: json }),
    ...(needsReplay === undefined ? {} : { needsReplay }),
  };
}

/**
 * Whether a replay of the trace runs beside the table.
 * @throws TKV_CONFIG for an option that needs a replay
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
    const compared = await comparePolicies(trace, run, {
      signal,
      progress: (share, done, note) => bar.update({ share, done, note }),
    });
    return run.hints.length === 0 ? compared : await withHints(trace, compared, run.hints, signal);
  }
}

//  A study as a table and as a chart.

export function renderStudy(study: Study): string {
  const { requests, lookups, blockTokens, lower } = study;
  const sizes = lowerTiers().map((name, i) => `${tierTitle(name)} ${lower[i]}`);
  const below = lower.every((blocks) => blocks === 0) ? '' : `, over ${sizes.join(' and ')} blocks`;
  const size = `${formatCounted(lookups, 'blocks')} of ${formatCounted(blockTokens, 'tokens')}`;
  const title = `policies: ${formatCounted(requests, 'requests')}, ${size}`;
  const rows = study.rows.map((row) => [
    formatCount(row.capacity),
    row.policy,
    formatCount(row.hits),
    row.hitPercent.toFixed(3),
    row.closedPercent === null ? '-' : row.closedPercent.toFixed(1),
    row.points.toFixed(3),
    row.nsPerBlock === null ? '-' : row.nsPerBlock.toFixed(0),
  ]);
  return `${title}${below}\n${renderTable(
    [
      { title: 'HBM blocks', align: 'right' },
      { title: 'policy' },
      { title: 'hits', align: 'right' },
      { title: 'hit %', align: 'right' },
      { title: 'gap closed %', align: 'right' },
      { title: 'points over lru', align: 'right' },
      { title: 'ns a block', align: 'right' },
    ],
    rows,
  )}`;
}

/** Hit rate over capacity, one line a policy; what a single capacity gives are bars. */
function studyChart(title: string, study: Study): VegaLiteSpec {
  const values = study.rows.map(({ capacity, policy, hitPercent }) => ({ capacity, policy, hitPercent }));
  const several = new Set(values.map(({ capacity }) => capacity)).size > 1;
  const hits = { field: 'hitPercent', type: 'quantitative', title: 'blocks found (%)' };
  const policy = { field: 'policy', type: 'nominal', title: null };
  const lines = {
    mark: { type: 'line', point: true },
    encoding: {
      x: { field: 'capacity', type: 'quantitative', scale: { type: 'log' }, title: 'HBM blocks' },
      y: hits,
      color: policy,
      strokeDash: policy,
    },
  };
  const bars = { mark: 'bar', encoding: { x: hits, y: { ...policy, sort: null } } };
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title,
    background: 'white',
    width: 520,
    height: several ? 300 : 160,
    data: { values },
    ...(several ? lines : bars),
  };
}
