/**
 * Bundles that put together what is best slot by slot. Each preset has one slot of its own and the usual
 * policies in the others, so no preset shows what two of them do together.
 */

import type { PolicyBundle, PolicySlot, PolicySpec } from '../../bundle/policyBundle.ts';
import { type Candidate, contentKey, type Individual, nameOfSpec } from '../bundles/index.ts';

/** Policies of a slot that are put together with those of others: the best over all and in four settings. */
const PER_SLOT = 5;

interface Choice {
  readonly spec: PolicySpec;
  readonly from: Individual;
}

/**
 * By score and by the lead in each setting in turn: the best preset with a policy that is not chosen yet, nor
 * one that decides as it does.
 */
function choicesOf(slot: PolicySlot, presets: readonly Individual[]): Choice[] {
  const having = presets.filter((preset) => preset.bundle[slot] !== undefined);
  const settings = Object.keys(presets[0]?.leads ?? {});
  const measures = [
    (preset: Individual): number => preset.score,
    ...settings.map((setting) => (preset: Individual) => preset.leads[setting]),
  ];
  // few seeds flatter: what was stopped in the race of presets comes after what was not
  const rankings = measures.map((measure) =>
    [...having].sort((a, b) => b.cases - a.cases || measure(b) - measure(a)),
  );
  const chosen = new Map<string, Choice>();
  const behaviours = new Set<string>();
  for (let turn = 0; chosen.size < PER_SLOT && turn < measures.length * having.length; turn++) {
    const ranking = rankings[turn % measures.length];
    const from = ranking.find(
      ({ bundle, behaviour }) => !chosen.has(JSON.stringify(bundle[slot])) && !behaviours.has(behaviour),
    );
    const spec = from?.bundle[slot];
    if (from === undefined || spec === undefined) break;
    chosen.set(JSON.stringify(spec), { spec, from });
    behaviours.add(from.behaviour);
  }
  return [...chosen.values()];
}

interface Combination {
  readonly specs: Readonly<Partial<Record<PolicySlot, PolicySpec>>>;
  readonly from: readonly Individual[];
  /** Sum of the places of its parts; those made of the best come first. */
  readonly places: number;
}

/** What a priority policy came with, so that its ranks are read; a choice of that slot goes over it. */
export function schedulerOf(slot: PolicySlot, { instanceScheduler }: PolicyBundle): PolicyBundle {
  return slot === 'priority' && instanceScheduler !== undefined ? { instanceScheduler } : {};
}

/** The bundle without the scheduler that came with a priority policy which another one is chosen for. */
function withoutRanks(bundle: PolicyBundle, slots: readonly PolicySlot[]): PolicyBundle {
  if (!slots.includes('priority')) return bundle;
  const { instanceScheduler: _, ...rest } = bundle;
  return rest;
}

/**
 * @param presets that ran
 * @param most the first of them, by the places of their parts
 */
export function crossings(
  presets: readonly Individual[],
  slots: readonly PolicySlot[],
  most: number,
): Candidate[] {
  let all: Combination[] = [{ specs: {}, from: [], places: 0 }];
  for (const slot of slots) {
    const choices = choicesOf(slot, presets);
    if (choices.length === 0) continue;
    all = all.flatMap(({ specs, from, places }) =>
      choices.map((choice, place) => ({
        specs: { ...schedulerOf(slot, choice.from.bundle), ...specs, [slot]: choice.spec },
        from: [...from, choice.from],
        places: places + place,
      })),
    );
  }
  const known = new Set(presets.map(({ bundle }) => contentKey(bundle)));
  const made: Candidate[] = [];
  for (const { specs, from } of all.sort((a, b) => a.places - b.places)) {
    if (made.length === most || from.length === 0) break;
    const bundle: PolicyBundle = { ...withoutRanks(from[0].bundle, slots), ...specs };
    if (known.has(contentKey(bundle))) continue;
    known.add(contentKey(bundle));
    const changes = slots.flatMap((slot) => (specs[slot] ? [`${slot}: ${nameOfSpec(specs[slot])}`] : []));
    const parents = [...new Set(from.map(({ id }) => id))];
    made.push({ bundle, origin: 'crossing', parents, changes });
  }
  return made;
}
