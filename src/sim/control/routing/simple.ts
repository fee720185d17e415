/** Routing rules of one line: in turn, and by one number of each instance. */

import { kvUtilization } from '../admission/index.ts';
import { effectiveLoad, type InstanceSnapshot } from '../instances.ts';
import type { PlainState } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { Picker } from './picking.ts';
import type { RoutingChoice, RoutingContext, RoutingPolicy } from './routingPolicy.ts';

export class RoundRobin implements RoutingPolicy {
  readonly name: string = 'round-robin';
  readonly readsCaches: boolean = false;
  readonly readsReports: boolean = false;
  #turn = 0;

  choose({ candidates }: RoutingContext): RoutingChoice {
    const index = this.#turn % candidates.length;
    return { index, reason: this.name, scores: null, parts: [], filteredOut: [] };
  }

  routed(): void {
    this.#turn++;
  }

  snapshot(): PlainState {
    return this.#turn;
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    this.#turn = state as number;
  }
}

/** A score of one instance, higher is better. */
export type InstanceScore = (instance: InstanceSnapshot, request: RequestView) => number;

export class ByScore implements RoutingPolicy {
  readonly name: string;
  readonly readsCaches: boolean = false;
  readonly readsReports: boolean;
  readonly #score: InstanceScore;
  readonly #picker: Picker;
  #scores: Float64Array = new Float64Array(8);

  constructor(name: string, score: InstanceScore, picker: Picker) {
    this.name = name;
    this.readsReports = score !== leastOutstanding;
    this.#score = score;
    this.#picker = picker;
  }

  choose({ request, candidates }: RoutingContext): RoutingChoice {
    if (this.#scores.length < candidates.length) this.#scores = new Float64Array(candidates.length * 2);
    for (let i = 0; i < candidates.length; i++) this.#scores[i] = this.#score(candidates[i], request);
    const index = this.#picker.highest(this.#scores, candidates.length);
    return { index, reason: this.name, scores: this.#scores, parts: [], filteredOut: [] };
  }

  snapshot(): PlainState {
    return this.#picker.snapshot();
  }

  restore(state: PlainState): void {
    this.#picker.restore(state);
  }
}

/** Fewest queued, running and in flight. */
export const leastLoaded: InstanceScore = (instance) => -effectiveLoad(instance);
/** Most of them: for tests of what a bad router does. */
export const alwaysBusiest: InstanceScore = (instance) => effectiveLoad(instance);
/** Fewest queued (LLQ). */
export const leastQueued: InstanceScore = ({ queueDepth }) => -queueDepth;
/** Fewest in flight, which is fresh (LOR). */
export const leastOutstanding: InstanceScore = ({ inFlight }) => -inFlight;
/** Least KV utilisation, AIBrix's least-kv-cache. */
export const leastCached: InstanceScore = (instance) => -kvUtilization(instance);

const OUTPUT_PER_PROMPT = 0.6;
const RESERVE_SHARE = 0.03;
const INADMISSIBLE = 10;
const PER_REQUEST = 0.001;

/**
 * Glia's head-room allocator (arXiv 2510.27176): a request needs (1.6 x its prompt + block - 1) / block
 * blocks; with T blocks in HBM of which F are free, it is admissible where F - needed >= 0.03 T. The score is
 * -(T - F + needed) / T - 0.001 x load, 10 less where it is not admissible. Before the first report T is
 * unknown and counts as one block, which is inadmissible everywhere alike.
 */
export function gliaHeadRoom(blockTokens: number): InstanceScore {
  return (instance, request) => {
    const needed = (request.promptTokens * (1 + OUTPUT_PER_PROMPT) + blockTokens - 1) / blockTokens;
    const hbm = instance.kv.tiers[0];
    const total = Math.max(1, hbm?.capacityBlocks ?? 0);
    const free = hbm?.capacityBlocks ? hbm.freeBlocks : 0;
    const used = total - free + needed;
    const score = -used / total - PER_REQUEST * effectiveLoad(instance);
    return total - used >= total * RESERVE_SHARE ? score : score - INADMISSIBLE;
  };
}
