/** Sessions that go from state to state: which state follows, after what pause, with how many tokens. */

import { elementary, type GoRandom, type LengthSampler, lengthSampler } from '../../../random/index.ts';
import { maxRequestTokens, type TokenSpan } from '../../request.ts';
import { END_STATE, type WalkSpec } from '../../spec/additions/index.ts';
import { leadingSpans, trailingSpans } from '../spans.ts';

interface State {
  readonly inputLength: LengthSampler;
  readonly outputLength: LengthSampler;
  readonly pauseMs: LengthSampler | null;
  /** States that may follow, -1 for the end, each with the share up to which it is drawn. */
  readonly next: readonly { readonly state: number; readonly upTo: number }[];
}

/** Where a walk goes next. */
export interface WalkStep {
  readonly state: number;
  readonly pauseUs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
}

export class Walk {
  readonly #spec: WalkSpec;
  readonly #states: readonly State[];
  readonly #rounds: LengthSampler | null;

  constructor(spec: WalkSpec) {
    this.#spec = spec;
    this.#rounds = spec.rounds === undefined ? null : lengthSampler(spec.rounds);
    const names = spec.states.map(({ name }) => name);
    this.#states = spec.states.map(({ inputLength, outputLength, pauseMs, next }): State => {
      const weights = Object.entries(next).filter(([, weight]) => weight > 0);
      const total = weights.reduce((sum, [, weight]) => sum + weight, 0);
      let reached = 0;
      return {
        inputLength: lengthSampler(inputLength),
        outputLength: lengthSampler(outputLength),
        pauseMs: pauseMs === undefined ? null : lengthSampler(pauseMs),
        next: weights.map(([name, weight]) => {
          reached += weight / total;
          return { state: name === END_STATE ? -1 : names.indexOf(name), upTo: reached };
        }),
      };
    });
  }

  /** Rounds of one session, drawn once. */
  drawRounds(random: GoRandom): number {
    const { maxRounds } = this.#spec;
    return this.#rounds === null ? maxRounds : Math.min(maxRounds, this.#rounds.next(random));
  }

  /**
   * @param from state of the request that ended @param round of the one that may follow
   * @returns null where the walk ends
   */
  step(from: number, round: number, random: GoRandom): WalkStep | null {
    const { next } = this.#states[from];
    const drawn = random.float64();
    const { state } = next.find(({ upTo }) => drawn < upTo) ?? next[next.length - 1];
    if (state === -1) return null;
    const { inputLength, outputLength, pauseMs } = this.#states[state];
    const { promptGrowthRate, decodeVariation } = this.#spec;
    const pauseUs = pauseMs === null ? 0 : 1000 * pauseMs.next(random);
    const growth = promptGrowthRate === 0 ? 1 : elementary.pow(1 + promptGrowthRate, round);
    const inputTokens = scaledTokens(inputLength.next(random), growth);
    const output = outputLength.next(random);
    const variation = decodeVariation === 0 ? 1 : 1 + decodeVariation * (2 * random.float64() - 1);
    return { state, pauseUs, inputTokens, outputTokens: scaledTokens(output, variation) };
  }

  /** What the next prompt repeats of a prompt and the first `answered` tokens of its answer. */
  contextOf(prompt: readonly TokenSpan[], answer: readonly TokenSpan[], answered: number): TokenSpan[] {
    const { growth, contextLimit } = this.#spec;
    if (growth === 'none') return [];
    // a summary takes the place of the answer
    const kept = growth === 'sublinear' ? Math.ceil(Math.sqrt(answered)) : answered;
    const all = [...prompt, ...leadingSpans(answer, kept)];
    return growth === 'bounded' ? trailingSpans(all, contextLimit) : all;
  }
}

/** A length times a factor: at least a token, and no more than a request may have. */
export function scaledTokens(tokens: number, factor: number): number {
  if (factor === 1) return tokens;
  return Math.min(maxRequestTokens, Math.max(1, Math.round(tokens * factor)));
}
