/**
 * Speculative decoding: before each step of the model a draft proposes `draftTokens` tokens a request, the step verifies
 * them all, and a request gets those up to the first that is refused, and one more. With an acceptance of a a token that is
 * (1 - a^(k+1)) / (1 - a) tokens a step on average (Leviathan et al., "Fast Inference from Transformers via Speculative
 * Decoding", 2023, equation 1).
 *
 * A simulator of one token a step spreads a verification over the tokens that it brought: as many steps as the requests of
 * the batch got on average, each of that part of its time. Draws are seeded and go by request and verification, so the sum
 * of a batch's times is the sum of its verifications; within one the tokens come evenly, and all requests of the batch advance
 * alike. Blocks for tokens that are refused are not counted.
 */

import { configError, requireInteger } from '../../runtime/errors.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';
import { fnv1a64, GoRandom } from '../random/goRand.ts';
import {
  BatchSums,
  type LatencyModel,
  type SpeculationChoice,
  type SpeculativeDecoding,
  toStepTicks,
} from './latencyModel.ts';

const tokensMax = 64;

/** @throws {TierKVError} TKV_CONFIG with the field at fault */
export function checkSpeculation<T extends SpeculationChoice>(choice: T): T {
  requireInteger('draftTokens', choice.draftTokens, 1, tokensMax);
  const { acceptance, draftUs } = choice;
  if (!(acceptance >= 0 && acceptance <= 1)) {
    throw configError('acceptance', `is ${acceptance}`, 'Set a share from 0 to 1.');
  }
  if (!(draftUs >= 0 && draftUs <= 1e9)) {
    throw configError('draftUs', `is ${draftUs}`, 'Set the time of one drafted token.');
  }
  return choice;
}

/** The steps of one instance that decodes by speculation. */
export class SpeculativeSteps {
  readonly #model: LatencyModel;
  readonly #choice: SpeculativeDecoding;
  readonly #random: GoRandom;
  readonly #seed: bigint;
  /** The chance that more than j proposed tokens are accepted, by j. */
  readonly #above: readonly number[];
  readonly #sums: BatchSums;
  readonly #decodes: BatchSums;
  /** Tokens that a verification brought a request on average, and what is left of them. */
  #brought = 0;
  #left = 0;
  /** Verifications so far, whole and parts. */
  verifications = 0;

  /** @param instance its number, so that each draws its own */
  constructor(model: LatencyModel, choice: SpeculativeDecoding, instance: number) {
    this.#model = model;
    this.#choice = choice;
    this.#seed = BigInt.asIntN(64, fnv1a64(`speculation ${choice.seed} ${instance}`));
    this.#random = new GoRandom(this.#seed);
    const above: number[] = [];
    for (let j = 0, power = choice.acceptance; j < choice.draftTokens; j++, power *= choice.acceptance)
      above.push(power);
    this.#above = above;
    this.#sums = new BatchSums(model.windowTokens);
    this.#decodes = new BatchSums(model.windowTokens);
  }

  /** Time of the step that gives each decode of the batch one token. */
  stepTimeUs(batch: BatchSums): number {
    const { draftTokens, draft } = this.#choice;
    const decodes = batch.decodeRequests;
    // a draft model has to compute the prompts too
    const draftPrefillUs = draft === undefined || batch.prefillRequests === 0 ? 0 : draft.stepTimeUs(batch);
    if (decodes === 0) return this.#model.stepTimeUs(batch) + draftPrefillUs;
    this.#sums.copy(batch);
    this.#sums.draftTokens = decodes * draftTokens;
    const wholeUs = this.#model.stepTimeUs(this.#sums);
    const verifyUs =
      batch.prefillRequests === 0 ? wholeUs : this.#model.stepTimeUs(this.#decodesOf(batch, draftTokens));
    const proposeUs = draftTokens * this.#draftUs(batch);
    const share = this.#take(decodes);
    return toStepTicks(wholeUs - verifyUs + draftPrefillUs + share * (verifyUs + proposeUs));
  }

  /** The decodes of a batch alone, each with the tokens that are verified. */
  #decodesOf(batch: BatchSums, draftTokens: number): BatchSums {
    const sums = this.#decodes;
    sums.clear();
    sums.addDecodes(batch.decodeRequests, batch.decodeContextTokens, batch.decodeWindowTokens);
    sums.draftTokens = batch.decodeRequests * draftTokens;
    return sums;
  }

  /** One proposed token for each decode. */
  #draftUs(batch: BatchSums): number {
    const { draft, draftUs } = this.#choice;
    return draft === undefined ? draftUs : draft.stepTimeUs(this.#decodesOf(batch, 0));
  }

  /** Verifications, as a number with a part, in which each of `decodes` requests gets one token. */
  #take(decodes: number): number {
    let needed = 1;
    let share = 0;
    while (needed > this.#left) {
      if (this.#brought > 0) share += this.#left / this.#brought;
      needed -= this.#left;
      this.#brought = this.#draw(decodes) / decodes;
      this.#left = this.#brought;
    }
    share += needed / this.#brought;
    this.#left -= needed;
    this.verifications += share;
    return share;
  }

  /** Tokens that `decodes` requests get of one verification. */
  #draw(decodes: number): number {
    let tokens = decodes;
    for (let i = 0; i < decodes; i++) {
      const drawn = this.#random.float64();
      for (const chance of this.#above) {
        if (drawn >= chance) break;
        tokens++;
      }
    }
    return tokens;
  }

  visitState(visitor: StateVisitor): void {
    this.#brought = visitor.number(this.#brought);
    this.#left = visitor.number(this.#left);
    this.verifications = visitor.number(this.verifications);
    visitor.value(
      () => this.#random.position,
      (position) => this.#random.seek(this.#seed, position),
    );
  }
}
