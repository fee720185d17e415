/**
 * Weighted scorers: the sum of clamped scores times weights that add up to 1; the highest sum wins. Added up
 * in the order of the scorers, as upstream does.
 */

import { configError } from '../../../runtime/errors.ts';
import type { InstanceSnapshot } from '../instances.ts';
import type { PlainState } from '../policy.ts';
import type { Filters } from './filters/index.ts';
import type { Picker } from './picking.ts';
import type { RoutingChoice, RoutingContext, RoutingPolicy, ScorePart } from './routingPolicy.ts';
import { makeScorer, type Scorer, scorerReadsReports } from './scorers/index.ts';

/** A scorer with its share of the whole and what it said last. */
export interface Part extends ScorePart {
  readonly scorer: Scorer;
  readonly weight: number;
  values: Float64Array;
  /** What the values were made of, where they depend on reports alone. */
  reports: number | undefined;
  candidates: readonly InstanceSnapshot[];
}

/** @throws TKV_CONFIG without any weight above 0 */
export function partsOf(weights: Readonly<Record<string, number>>, blockTokens: number): Part[] {
  const entries = Object.entries(weights).filter(([, weight]) => weight > 0);
  const sum = entries.reduce((total, [, weight]) => total + weight, 0);
  if (entries.length === 0) throw configError('routing.scorers', 'has no weight above 0', 'Name one scorer.');
  return entries.map(([name, weight]) => ({
    name,
    weight: weight / sum,
    scorer: makeScorer(name, blockTokens),
    values: new Float64Array(8),
    reports: undefined,
    candidates: [],
  }));
}

/** Asks every scorer; scores are clamped to [0, 1]. */
export function askScorers(parts: readonly Part[], context: RoutingContext): void {
  const { candidates, reports } = context;
  const count = candidates.length;
  for (const part of parts) {
    if (part.scorer.readsReportsAlone === true) {
      const holds = reports !== undefined && part.reports === reports && part.candidates === candidates;
      if (holds) continue;
      part.reports = reports;
      part.candidates = candidates;
    }
    if (part.values.length < count) part.values = new Float64Array(count * 2);
    part.scorer.score(context, part.values);
    for (let i = 0; i < count; i++) part.values[i] = Math.min(1, Math.max(0, part.values[i]));
  }
}

export class Weighted implements RoutingPolicy {
  readonly name: string = 'weighted';
  readonly readsCaches: boolean;
  readonly readsReports: boolean;
  protected readonly parts: readonly Part[];
  readonly #picker: Picker;
  readonly #filters: Filters;
  #scores: Float64Array = new Float64Array(8);

  constructor(parts: readonly Part[], filters: Filters, picker: Picker) {
    this.parts = parts;
    this.readsCaches = filters.readsCaches || parts.some(({ scorer }) => scorer.readsCaches);
    this.readsReports = filters.readsReports || parts.some(({ name }) => scorerReadsReports(name));
    this.#filters = filters;
    this.#picker = picker;
  }

  choose(context: RoutingContext): RoutingChoice {
    const count = context.candidates.length;
    if (this.#scores.length < count) this.#scores = new Float64Array(count * 2);
    const scores = this.#scores;
    askScorers(this.parts, context);
    this.sum(context, scores);
    const filteredOut = this.#filters.apply(context, scores);
    const index = this.#picker.highest(scores, count);
    return { index, reason: this.name, scores, parts: this.parts, filteredOut };
  }

  /** Adds the parts up; a subclass may weigh them anew for each request. */
  protected sum({ candidates }: RoutingContext, scores: Float64Array): void {
    for (let i = 0; i < candidates.length; i++) {
      let sum = 0;
      for (const { values, weight } of this.parts) sum += values[i] * weight;
      scores[i] = sum;
    }
  }

  routed(context: RoutingContext, instance: number): void {
    for (const { scorer } of this.parts) scorer.routed?.(context, instance);
    this.#filters.routed(context, instance);
  }

  removed(instance: number): void {
    for (const { scorer } of this.parts) scorer.removed?.(instance);
    this.#filters.removed(instance);
  }

  snapshot(): PlainState {
    return {
      scorers: this.parts.map(({ scorer }) => scorer.snapshot()),
      picker: this.#picker.snapshot(),
      filters: this.#filters.snapshot(),
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as { scorers: readonly PlainState[]; picker: PlainState; filters: PlainState };
    this.parts.forEach(({ scorer }, i) => {
      scorer.restore(saved.scorers[i]);
    });
    this.#picker.restore(saved.picker);
    this.#filters.restore(saved.filters);
  }
}
