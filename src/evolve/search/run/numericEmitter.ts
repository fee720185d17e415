/**
 * Search over the numbers of one bundle by CMA-ES or the evolution strategy. When it has settled, or nothing
 * got better for some generations, it starts again on another bundle, first on one of a new structure.
 */

import type { GoRandom } from '../../../sim/random/index.ts';
import { contentHash } from '../../bundle/index.ts';
import type { PolicyBundle, PolicySlot } from '../../bundle/policyBundle.ts';
import {
  type Candidate,
  contentKey,
  type Individual,
  kindOf,
  NumberSpace,
  type SlotGuides,
} from '../bundles/index.ts';
import {
  askCma,
  askStrategy,
  type CmaState,
  cmaSpread,
  newCma,
  newStrategy,
  type StrategyState,
  strategySpread,
  tellCma,
  tellStrategy,
} from '../numeric/index.ts';

export interface NumericState {
  readonly method: 'cma' | 'strategy';
  /** Points of a generation. */
  readonly population: number;
  /** Bundle whose numbers it moves; null before the first start and where there is none. */
  base: string | null;
  cma: CmaState | null;
  strategy: StrategyState | null;
  best: number;
  /** Generations since the best was found. */
  idle: number;
}

const SIGMA = 0.2;
const SETTLED = 0.004;
const IDLE_MAX = 5;
/** Structures among which the next start is chosen, and how many of one kind. */
const CHOICE = 6;
const OF_ONE_KIND = 3;

export function newNumeric(method: NumericState['method'], population: number): NumericState {
  return { method, population, base: null, cma: null, strategy: null, best: 0, idle: 0 };
}

export interface NumericContext {
  readonly guides: SlotGuides;
  readonly slots: readonly PolicySlot[];
  find(id: string): Individual;
  /** All that ran, the best first. */
  readonly ranking: readonly Individual[];
  /** How often each structure was started on, by any emitter; counted on. */
  readonly starts: Record<string, number>;
}

function spaceOf(bundle: PolicyBundle, guides: SlotGuides, slots: readonly PolicySlot[]): NumberSpace {
  return new NumberSpace(bundle, guides, slots, 'inUse');
}

function isSettled({ cma, strategy, idle }: NumericState): boolean {
  if (idle > IDLE_MAX) return true;
  if (cma !== null) return cmaSpread(cma) < SETTLED;
  return strategy !== null && strategySpread(strategy) < SETTLED;
}

/** Text that is equal for bundles that differ by numbers in use only. */
function structureOf(bundle: PolicyBundle, guides: SlotGuides, slots: readonly PolicySlot[]): string {
  const space = spaceOf(bundle, guides, slots);
  return contentHash(contentKey(space.at(new Array(space.dimensions).fill(0.5))));
}

/** The best bundle of each structure; among the first of them the one that was started on least often. */
function start(state: NumericState, { guides, slots, ranking, starts }: NumericContext): void {
  const seen = new Map<string, Individual>();
  const ofKind = new Map<string, number>();
  for (const individual of ranking) {
    if (seen.size === CHOICE) break;
    const kind = kindOf(individual.bundle, slots);
    const structure = structureOf(individual.bundle, guides, slots);
    const before = ofKind.get(kind) ?? 0;
    if (before === OF_ONE_KIND || seen.has(structure)) continue;
    if (spaceOf(individual.bundle, guides, slots).dimensions === 0) continue;
    ofKind.set(kind, before + 1);
    seen.set(structure, individual);
  }
  let chosen: readonly [string, Individual] | undefined;
  for (const entry of seen) {
    const count = starts[entry[0]] ?? 0;
    if (chosen === undefined || count < (starts[chosen[0]] ?? 0)) chosen = entry;
  }
  state.cma = null;
  state.strategy = null;
  state.base = null;
  if (chosen === undefined) return;
  const [structure, { id, bundle, score }] = chosen;
  const space = spaceOf(bundle, guides, slots);
  starts[structure] = (starts[structure] ?? 0) + 1;
  state.base = id;
  state.best = score;
  state.idle = 0;
  if (state.method === 'cma') state.cma = newCma(space.point, SIGMA, state.population, space.leastDeviation);
  else state.strategy = newStrategy(space.point, SIGMA, state.population, space.leastDeviation);
}

/** Its candidates of this generation with their points; none where no bundle has numbers. */
export function askNumeric(
  state: NumericState,
  context: NumericContext,
  random: GoRandom,
): { readonly candidates: readonly Candidate[]; readonly points: readonly (readonly number[])[] } {
  if (state.base === null || isSettled(state)) start(state, context);
  if (state.base === null) return { candidates: [], points: [] };
  const { id, bundle } = context.find(state.base);
  const space = spaceOf(bundle, context.guides, context.slots);
  let points: number[][] = [];
  if (state.cma !== null) points = askCma(state.cma, random);
  else if (state.strategy !== null) points = askStrategy(state.strategy, random);
  const changes = [`numbers by ${state.method === 'cma' ? 'CMA-ES' : 'the evolution strategy'}`];
  const candidates = points.map((point): Candidate => {
    return { bundle: space.at(point), origin: state.method, parents: [id], changes };
  });
  return { candidates, points };
}

/** @param scores of the points, in their order */
export function tellNumeric(
  state: NumericState,
  points: readonly (readonly number[])[],
  scores: readonly number[],
): void {
  if (points.length === 0) return;
  if (state.cma !== null) tellCma(state.cma, points, scores);
  else if (state.strategy !== null) tellStrategy(state.strategy, scores);
  const best = Math.max(...scores);
  state.idle = best > state.best ? 0 : state.idle + 1;
  state.best = Math.max(state.best, best);
}
