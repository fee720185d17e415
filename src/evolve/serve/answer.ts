/**
 * What frameworks are answered: one flat object that SkyDiscover, OpenEvolve and GEPA read alike. All metrics
 * are there always, with zeros where a candidate failed, since a framework drops a candidate that lacks one.
 */

import type { PolicyBundle } from '../bundle/index.ts';
import type { Evaluation, EvaluationError } from '../fitness/evaluation.ts';
import { policyNodes } from '../fitness/index.ts';

export interface ScenarioAnswer {
  /** Workload, model of time, seed. */
  readonly id: string;
  /** As `combined_score`, of this case alone. */
  readonly score: number;
  /** Gains over the baseline by objective. */
  readonly objectives: Readonly<Record<string, number>>;
}

export interface Answer {
  readonly status: 'success' | 'error' | 'timeout';
  /** Above 0 for what ran, 1 for the baseline, more is better; 0 for what failed. */
  readonly combined_score: number;
  readonly metrics: Readonly<Record<string, number>>;
  readonly per_scenario: readonly ScenarioAnswer[];
  /** Texts for the next prompt. */
  readonly artifacts: Readonly<Record<string, string>>;
  /** 16 hexadecimal digits; '' where there was no bundle to hash. */
  readonly policy_hash: string;
  readonly error?: EvaluationError;
}

/** From a score of which 0 is the baseline to one that is positive and rises with it: 1 is the baseline. */
export function combinedScore(score: number): number {
  return score >= 0 ? 1 + score : 1 / (1 - score);
}

function named(names: readonly string[], values: readonly number[]): Record<string, number> {
  return Object.fromEntries(names.map((name, i) => [name, values[i] ?? 0]));
}

/** Plain numbers only: a framework that bins or averages stumbles over others. */
function finite(metrics: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(metrics).map(([name, value]) => [name, Number.isFinite(value) ? value : 0]),
  );
}

export function answerOf(
  evaluation: Evaluation,
  bundle: PolicyBundle,
  objectives: readonly string[],
  artifacts: Readonly<Record<string, string>>,
): Answer {
  const { error, score, metrics, cases = [], policyId } = evaluation;
  if (error !== undefined)
    return { ...failure(error, Object.keys(metrics), objectives), policy_hash: policyId };
  const gains = named(
    objectives.map((name) => `gain_${name}`),
    evaluation.objectives,
  );
  return {
    status: 'success',
    combined_score: combinedScore(score),
    metrics: finite({ ...metrics, ...gains, score, policy_nodes: policyNodes(bundle) }),
    per_scenario: cases.map((each) => ({
      id: each.id,
      score: combinedScore(each.score),
      objectives: named(objectives, each.objectives),
    })),
    artifacts,
    policy_hash: policyId,
  };
}

/** @param metrics names that have to be there */
export function failure(
  error: EvaluationError,
  metrics: readonly string[],
  objectives: readonly string[],
): Answer {
  const names = [...metrics, ...objectives.map((name) => `gain_${name}`), 'score', 'policy_nodes'];
  return {
    status: error.kind === 'infrastructure_timeout' ? 'timeout' : 'error',
    combined_score: 0,
    metrics: Object.fromEntries(names.map((name) => [name, 0])),
    per_scenario: [],
    artifacts: { failure: failureText(error) },
    policy_hash: '',
    error,
  };
}

function failureText({ kind, message, line }: EvaluationError): string {
  const place = line === undefined ? '' : ` at line ${line}`;
  const head = message.startsWith(kind) ? message : `${kind}${place}: ${message}`;
  return `The policy did not run. ${head}`;
}
