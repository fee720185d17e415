/**
 * The time of a search, shared among its phases: presets, generations, validation, judging. A phase may use the time
 * that earlier ones left. When its time is up, cases that have not begun are left out, and running ones end. Each
 * phase runs at least one policy on one seed of each setting, so that a search without any time has a winner too.
 * Without a budget nothing is left out, and nothing here depends on a clock.
 */

import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import type { PolicyBundle } from '../bundle/policyBundle.ts';
import { type Evaluation, type Evaluator, type SuiteName, settingOf } from '../fitness/evaluation.ts';
import { rungsOf } from './racing.ts';

/** End of each phase, as a share of the whole time. */
const ends = { presets: 0.35, generations: 0.7, validation: 0.85, judging: 1 } as const;
type SearchPhase = keyof typeof ends;

/** The reason of a phase's signal when its time is up. */
export class TimeIsUp extends Error {
  override readonly name: string = 'TimeIsUp';
}

/** The time of a search, shared among its phases. */
export class SearchBudget {
  readonly #startMs: number;
  readonly #totalMs: number;
  readonly #now: () => number;
  #caseMs = 0;

  constructor(totalMs: number, now: () => number = () => performance.now()) {
    checkInputs({ totalMs, now }, { totalMs: is.number(), now: is.optional(is.func()) });
    this.#totalMs = totalMs;
    this.#now = now;
    this.#startMs = now();
  }

  leftMs(phase: SearchPhase): number {
    return Math.max(0, this.#startMs + ends[phase] * this.#totalMs - this.#now());
  }

  /** Share of the whole time that is over, at most 1. */
  get usedShare(): number {
    return this.#totalMs > 0 ? Math.min(1, (this.#now() - this.#startMs) / this.#totalMs) : 1;
  }

  /** Number of cases that fit into the time left of a phase, at the measured pace; 0 before `measure`. */
  casesLeft(phase: SearchPhase): number {
    return this.#caseMs === 0 ? 0 : this.leftMs(phase) / this.#caseMs;
  }

  /** Runs `act` with a signal that aborts with `TimeIsUp` at the end of the phase. */
  during<T>(phase: SearchPhase, act: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const controller = new AbortController();
    const stop = (): void => controller.abort(new TimeIsUp('the time of this phase is up'));
    const leftMs = this.leftMs(phase);
    if (leftMs === 0) stop();
    // the delay of a timer has 31 bits
    const timer = setTimeout(stop, Math.min(leftMs, 2 ** 31 - 1));
    return act(controller.signal).finally(() => clearTimeout(timer));
  }

  /** Runs `act`, which simulates `cases` cases, and takes the pace from it. */
  async measure<T>(cases: number, act: () => Promise<T>): Promise<T> {
    const beganMs = this.#now();
    const result = await act();
    this.#caseMs = Math.max(1e-3, (this.#now() - beganMs) / cases);
    return result;
  }
}

/** Limits of an evaluation of many bundles. */
export interface Within {
  readonly signal?: AbortSignal | undefined;
  readonly budget?: SearchBudget | undefined;
  readonly phase: SearchPhase;
}

/** Evaluations in the order of the bundles; undefined for a bundle that the budget left no time for. */
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
 * The largest rung of a suite on which `count` policies fit into the time left.
 * @returns undefined where the first rung is too large
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
