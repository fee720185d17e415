/**
 * Objectives of a search: metrics with a direction and a weight, their gains over a baseline, and the score that
 * several gains make. Also the table of all raw metrics with units and meanings, and the size of a bundle, which an
 * objective can keep small.
 *
 * The gain of a metric v over the baseline's b is 1 - v / b where less is better, and v / b - 1 where more is better.
 * So 0 is as good as the baseline, and cases with large and with small figures have equal weight.
 */

import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { type PolicyBundle, type PolicySpec, policySlots, type TreeNode } from '../bundle/policyBundle.ts';

/** One objective of a score: a raw metric, its direction and its weight. */
export interface ObjectiveSpec {
  readonly name: string;
  /** Name of the raw metric. */
  readonly metric: string;
  readonly direction: 'min' | 'max';
  readonly weight: number;
}

/**
 * From several gains to one score. `weighted-sum`: the weighted mean. `worst`: the lowest gain, for policies that must
 * not pay for one objective with another. `balanced`: the weighted harmonic mean of 1 + gain, less 1; a loss counts
 * more than a gain of the same size.
 */
export const scalarisers = ['weighted-sum', 'worst', 'balanced'] as const;
type Scalariser = (typeof scalarisers)[number];

/**
 * `weighted`: the scalariser decides. `slo-first`: a case whose SLO attainment misses the target scores below every case
 * that reaches it, the lower the further it misses; the scalariser decides among the others.
 */
export const scoreModes = ['weighted', 'slo-first'] as const;
type ScoreMode = (typeof scoreModes)[number];

/** How raw metrics become a score. */
export interface Scoring {
  readonly objectives: readonly ObjectiveSpec[];
  readonly scalariser: Scalariser;
  readonly mode: ScoreMode;
  /** Target of the metric `slo_attainment` for `slo-first`, from 0 to 1. */
  readonly attainmentTarget: number;
}

/** Bounds of a gain, so that one terrible case does not hide all others. */
export const GAIN_MIN = -10;
const GAIN_MAX = 10;

/** Score of a bundle that failed: below the score of every bundle that ran. */
export const FAILED_SCORE = -100;

function gainOf(value: number, base: number, direction: 'min' | 'max'): number {
  const gain =
    base > 0
      ? direction === 'min'
        ? 1 - value / base
        : value / base - 1
      : direction === 'min'
        ? -value
        : value;
  return Math.min(GAIN_MAX, Math.max(GAIN_MIN, gain)) + 0;
}

type MetricValues = Readonly<Record<string, number>>;

export function gainsOf(
  metrics: MetricValues,
  base: MetricValues,
  objectives: readonly ObjectiveSpec[],
): number[] {
  checkInputs(
    { metrics, base, objectives },
    {
      metrics: is.object(),
      base: is.object(),
      objectives: is.list(is.fields({ name: is.text(), metric: is.text() })),
    },
  );
  return objectives.map(({ metric, direction }) =>
    gainOf(metrics[metric] ?? 0, base[metric] ?? 0, direction),
  );
}

function scalar(gains: readonly number[], objectives: readonly ObjectiveSpec[], by: Scalariser): number {
  const weights = objectives.map(({ weight }) => weight);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  switch (by) {
    case 'weighted-sum':
      return gains.reduce((sum, gain, i) => sum + gain * weights[i], 0) / total;
    case 'worst':
      return Math.min(...gains);
    case 'balanced': {
      const factors = gains.map((gain) => Math.max(0, 1 + gain));
      return harmonic(factors, weights, total) - 1;
    }
  }
}

/** The weighted harmonic mean; 0 where one of the factors is 0. */
function harmonic(factors: readonly number[], weights: readonly number[], total: number): number {
  let sum = 0;
  for (const [i, factor] of factors.entries()) {
    if (factor === 0) return 0;
    sum += weights[i] / factor;
  }
  return total / sum;
}

/** The score of one case: 0 for the baseline itself, more is better. */
export function caseScore(metrics: MetricValues, gains: readonly number[], scoring: Scoring): number {
  checkInputs(
    { metrics, gains, scoring },
    {
      metrics: is.object(),
      gains: is.list(is.number()),
      scoring: is.fields({ scalariser: is.text(), mode: is.text() }),
    },
  );
  const { objectives, scalariser, mode, attainmentTarget } = scoring;
  const plain = scalar(gains, objectives, scalariser);
  if (mode === 'weighted') return plain;
  const missing = attainmentTarget - (metrics.slo_attainment ?? 0);
  return missing > 0 ? GAIN_MIN - missing : plain;
}

// Names, units and meanings of the raw metrics, for people, prompts and plans.

interface MetricDescription {
  /** `CLASS`, `TENANT`, `TIER`, `TARGET` and `CONFIG` stand for names of the workload and the deployment. */
  readonly name: string;
  /** '' for none. */
  readonly unit: string;
  readonly about: string;
}

const of = (name: string, unit: string, about: string): MetricDescription => ({ name, unit, about });

const times = [
  ['ttft', 'time to the first token'],
  ['tpot', 'time between tokens'],
  ['e2e', 'time to the end'],
] as const;

const over: Readonly<Record<string, readonly string[]>> = {
  ttft: ['mean', 'p50', 'p95', 'p99', 'max'],
  tpot: ['mean', 'p99', 'max'],
  e2e: ['mean', 'p50', 'p95', 'p99', 'max'],
};

export const metricDescriptions: readonly MetricDescription[] = [
  of('latency_ms', 'ms', 'half of the mean and half of the P95 of e2e'),
  of('requests', '', 'requests of the workload'),
  of('completed', '', 'that completed'),
  of('completion_rate', '0..1', 'share that completed'),
  of('duration_s', 's', 'simulated time of the run'),
  ...times.flatMap(([name, about]) =>
    over[name].map((figure) => of(`${name}_${figure}_ms`, 'ms', `${about}, ${figure}`)),
  ),
  of('requests_per_s', '1/s', 'completed requests'),
  of('tokens_per_s', '1/s', 'generated tokens'),
  of(
    'slo_attainment',
    '0..1',
    'share of requests that met all targets of their class, as lost ones do not; without targets, that completed',
  ),
  of('slo_attainment.CLASS', '0..1', 'the same of a class'),
  of('slo_attainment.CLASS.TARGET', '0..1', 'of a class, by one of its targets alone: ttft, tpot, e2e'),
  of(
    'class_weighted_attainment',
    '0..1',
    'mean of the classes by weight: critical 4, standard 2, batch 0.5, others 1',
  ),
  of('jain_index', '0..1', "fairness of the tenants' tokens; 1 where all have the same"),
  of('tenant_tokens_per_s.TENANT', '1/s', 'generated tokens of a tenant'),
  of('tenant_ttft_p99_ms.TENANT', 'ms', 'time to the first token of a tenant, P99'),
  of('tenant_e2e_mean_ms.TENANT', 'ms', 'time to the end of a tenant, mean'),
  of('tenant_e2e_p99_ms.TENANT', 'ms', 'time to the end of a tenant, P99'),
  of('cache_hit_rate', '0..1', 'share of looked-up blocks that were found in any tier, over all instances'),
  of('hit_rate.TIER', '0..1', 'share that was found in a tier'),
  of('kv_utilization.TIER', '0..1', 'share of a tier in use, mean over time'),
  of('kv_utilization_max.TIER', '0..1', 'the largest share in use, over all instances together'),
  of('kv_transfer_blocks_per_s', 'blocks/s', 'sent to a lower tier, and from one to the top'),
  of('thrashed_reloads', 'blocks', 'reloaded soon after they were offloaded'),
  of('preemption_rate', '', 'preemptions a request'),
  of('admission_rate', '0..1', 'share of requests that was admitted'),
  of('reject_rate', '0..1', 'share that was turned away: by admission, the gateway queue or routing'),
  of('delays', '', 'decisions to ask again later'),
  of('load_cv', '', 'how much requests by instance vary: deviation over mean'),
  of('load_jain', '0..1', 'evenness of requests by instance'),
  of('divergence_rate', '', 'routed requests whose cached blocks were other than predicted'),
  of('scale_events', '', 'changes of the number of replicas'),
  of('mean_replicas', '', 'replicas over time, of all configurations'),
  of('mean_replicas.CONFIG', '', 'of one configuration'),
  of('scale_efficiency', '', 'slo_attainment a replica'),
  of(
    'priority_inversions',
    '',
    'pairs of a class on an instance of which the earlier took over twice as long',
  ),
  of('head_of_line_instances', '', 'instances with a queue over twice as long as the mean'),
  of('tail_blowup', '', 'e2e_p99_ms over e2e_p50_ms'),
  ...times.flatMap(([name, about]) =>
    ['mean', 'p50', 'p95', 'p99'].map((figure) =>
      of(`${name}_${figure}_ms.CLASS`, 'ms', `${about} of a class, ${figure}`),
    ),
  ),
  of('policy_nodes', '', 'size of the policy: parameters, nodes of trees, words of programs'),
];

const parts = { CLASS: '[^.]+', TENANT: '.+', TIER: '[^.]+', CONFIG: '.+', TARGET: '(?:ttft|tpot|e2e)' };

const patterns = metricDescriptions.map(({ name }) => {
  const text = Object.entries(parts).reduce(
    (pattern, [part, whatever]) => pattern.replace(part, whatever),
    name.replaceAll('.', '\\.'),
  );
  return new RegExp(`^${text}$`);
});

/** Whether a run can give a metric of that name, with some class, tenant, tier or configuration. */
export function isMetricName(name: string): boolean {
  return patterns.some((pattern) => pattern.test(name));
}

/** A list for a prompt; times of classes in one line. */
export function metricsText(): string {
  const lines = metricDescriptions
    .filter(({ name }) => !/^(ttft|tpot|e2e)_.*\.CLASS$/.test(name))
    .map(({ name, unit, about }) => `- ${name}${unit === '' ? '' : ` (${unit})`}: ${about}`);
  return [
    '## Metrics',
    '',
    'What a run is judged by; objectives of a plan name them. In every time a request that did not complete',
    'counts as the slowest of the run and of the baseline, at least a minute, so that turning requests away does not',
    'look fast. CLASS, TENANT, TIER, TARGET and CONFIG stand',
    'for names of the workload and the deployment.',
    ...lines,
    '- ttft_, tpot_ and e2e_ with mean, p50, p95 or p99, and _ms.CLASS: the same times of a class',
    '',
  ].join('\n');
}

// The size of a bundle. An objective on it keeps policies readable and from fitting the train suite too closely.

const comments = { starlark: /#.*$/gm, javascript: /\/\/.*$/gm };

function treeSize(node: TreeNode): number {
  return 'condition' in node ? 1 + treeSize(node.trueChild) + treeSize(node.falseChild) : 1;
}

function specSize(spec: PolicySpec): number {
  switch (spec.type) {
    case 'parameterized':
      return (
        1 +
        Object.values(spec.parameters).reduce((sum: number, value) => {
          return sum + (typeof value === 'object' ? Object.keys(value).length : 1);
        }, 0)
      );
    case 'decisionTree':
      return treeSize(spec.root);
    case 'code':
      // words and signs of the text without comments; a WASM module counts one for every four bytes
      return spec.language === 'wasm'
        ? Math.ceil(spec.source.length / 4)
        : (spec.source.replaceAll(comments[spec.language], '').match(/\w+|[^\s\w]/g)?.length ?? 0);
  }
}

/** Nodes of trees, parameters that are set, words and signs of programs, over all slots. */
export function policyNodes(bundle: PolicyBundle): number {
  checkInputs({ bundle }, { bundle: is.object() });
  return policySlots.reduce((sum, slot) => {
    const spec = bundle[slot];
    return spec === undefined ? sum : sum + specSize(spec);
  }, 0);
}
