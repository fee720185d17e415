/**
 * The time that a search is given, shared out among its phases: presets, generations, validation, judging. A
 * phase may use what earlier ones left. When its time is up, what has not begun is left out, and what runs is
 * waited for; each phase has one policy on one seed of each setting at the least, so that even no time at all
 * gives a winner. Without a budget nothing is left out, and nothing here depends on a clock.
 */

import { requireShapes } from '../../runtime/options.ts';
import type { PolicyBundle } from '../bundle/policyBundle.ts';
import { type Evaluation, type Evaluator, type SuiteName, settingOf } from '../fitness/evaluation.ts';
import { rungsOf } from './racing.ts';

/** When each phase ends, as a share of the whole. */
const ends = { presets: 0.35, generations: 0.7, validation: 0.85, judging: 1 } as const;
type SearchPhase = keyof typeof ends;

/** What a phase's signal is aborted with. */
export class TimeIsUp extends Error {
  override readonly name: string = 'TimeIsUp';
}

export class SearchBudget {
  readonly #startMs: number;
  readonly #totalMs: number;
  readonly #now: () => number;
  #caseMs = 0;

  constructor(totalMs: number, now: () => number = () => performance.now()) {
    requireShapes({ totalMs, now }, { totalMs: 'number', now: 'function?' });
    this.#totalMs = totalMs;
    this.#now = now;
    this.#startMs = now();
  }

  leftMs(phase: SearchPhase): number {
    return Math.max(0, this.#startMs + ends[phase] * this.#totalMs - this.#now());
  }

  /** Cases that fit into what is left, at the pace measured; 0 as long as none is. */
  casesLeft(phase: SearchPhase): number {
    return this.#caseMs === 0 ? 0 : this.leftMs(phase) / this.#caseMs;
  }

  /** Aborts with `TimeIsUp` at the end of the phase. */
  during<T>(phase: SearchPhase, act: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const controller = new AbortController();
    const stop = (): void => controller.abort(new TimeIsUp('the time of this phase is up'));
    const leftMs = this.leftMs(phase);
    if (leftMs === 0) stop();
    // a timer holds 31 bits
    const timer = setTimeout(stop, Math.min(leftMs, 2 ** 31 - 1));
    return act(controller.signal).finally(() => clearTimeout(timer));
  }

  /** Runs `act`, which simulates `cases` cases, and measures the pace by it. */
  async measure<T>(cases: number, act: () => Promise<T>): Promise<T> {
    const beganMs = this.#now();
    const result = await act();
    this.#caseMs = Math.max(1e-3, (this.#now() - beganMs) / cases);
    return result;
  }
}

/** What an evaluation of many bundles is held to. */
export interface Within {
  readonly signal?: AbortSignal | undefined;
  readonly budget?: SearchBudget | undefined;
  readonly phase: SearchPhase;
}

/** Evaluations by bundle, in their order; undefined for a bundle that the time left out. */
export async function evaluateWithin(
  evaluator: Evaluator,
  bundles: readonly PolicyBundle[],
  suite: SuiteName,
  { signal, budget, phase }: Within,
  cases?: readonly string[],
): Promise<readonly (Evaluation | undefined)[]> {
  if (budget === undefined) return evaluator.evaluate(bundles, suite, signal, cases);
  return budget.during(phase, (end) => {
    const either = signal === undefined ? end : AbortSignal.any([signal, end]);
    return Promise.all(
      bundles.map(async (bundle) => {
        if (end.aborted && signal?.aborted !== true) return undefined;
        try {
          const [evaluation] = await evaluator.evaluate([bundle], suite, either, cases);
          return evaluation;
        } catch (error) {
          if (error instanceof TimeIsUp) return undefined;
          throw error;
        }
      }),
    );
  });
}

/** The first seed of each setting. */
export function oneSeedEach(cases: readonly string[]): readonly string[] {
  const seen = new Set<string>();
  return cases.filter((id) => {
    const isFirst = !seen.has(settingOf(id));
    seen.add(settingOf(id));
    return isFirst;
  });
}

/**
 * The most seeds of a suite on which `count` policies fit into the time, two at the least.
 * @returns undefined where even those are too many
 */
export function affordable(
  cases: readonly string[],
  count: number,
  { budget, phase }: Within,
): readonly string[] | undefined {
  if (budget === undefined) return cases;
  const left = budget.casesLeft(phase);
  return rungsOf(cases).findLast((rung) => (count + 1) * rung.length <= left);
}
