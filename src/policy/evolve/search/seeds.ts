/**
 * The beginning of a search: the presets of the searched slots, plain programs and trees, crossings of presets, and
 * the material of each slot.
 */

import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { type PolicyBundle, type PolicySlot, type PolicySpec, policySlots } from '../bundle/policyBundle.ts';
import { baseline, presets, withItsScheduler } from '../bundle/presets.ts';
import { slotContracts, treeFeatures } from '../bundle/slots.ts';
import type { Feature, FeatureTable } from '../features/feature.ts';
import {
  type Candidate,
  contentKey,
  type Individual,
  nameOfSpec,
  type SlotGuide,
  type SlotGuides,
} from './individual.ts';
import { fieldsRead, type ProgramFields } from './programs.ts';
import type { TreeAction, TreeFeature, TreeVocabulary } from './trees.ts';

// Crossings of presets. A preset has one slot of its own and the usual policies in the others, so presets alone never
// show the effect of two good policies together.

/** Policies of a slot that are crossed with policies of other slots: the best over all and in four settings. */
const PER_SLOT = 5;

interface CrossedChoice {
  readonly spec: PolicySpec;
  readonly from: Individual;
}

/**
 * The policies of a slot for crossings. The measures take turns (score, lead in each setting): each turn chooses the
 * best preset whose policy and behaviour are not chosen yet.
 */
function choicesOf(slot: PolicySlot, presets: readonly Individual[]): CrossedChoice[] {
  const having = presets.filter((preset) => preset.bundle[slot] !== undefined);
  const settings = Object.keys(presets[0]?.leads ?? {});
  const measures = [
    (preset: Individual): number => preset.score,
    ...settings.map((setting) => (preset: Individual) => preset.leads[setting]),
  ];
  // few seeds flatter, so presets that the race stopped come last
  const rankings = measures.map((measure) =>
    [...having].sort((a, b) => b.cases - a.cases || measure(b) - measure(a)),
  );
  const chosen = new Map<string, CrossedChoice>();
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
  /** Sum of the places of its parts. Combinations of the best parts come first. */
  readonly places: number;
}

/** The scheduler that a priority policy came with, which reads its ranks. A choice for that slot replaces it. */
function schedulerOf(slot: PolicySlot, { instanceScheduler }: PolicyBundle): PolicyBundle {
  return slot === 'priority' && instanceScheduler !== undefined ? { instanceScheduler } : {};
}

/** The bundle without its scheduler, where the priority slot is searched: the scheduler came with its priority policy. */
function withoutRanks(bundle: PolicyBundle, slots: readonly PolicySlot[]): PolicyBundle {
  if (!slots.includes('priority')) return bundle;
  const { instanceScheduler: _, ...rest } = bundle;
  return rest;
}

/**
 * Bundles of the best policies of several slots.
 * @param presets presets that ran
 * @param most largest number of bundles; combinations of the best parts come first
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

// The first policies of a search: the presets of the searched slots, and plain programs and trees, from which mutations
// start. The search has to beat all of them.

const starlark = (source: string): PolicySpec => ({ type: 'code', language: 'starlark', source });

const plain: Readonly<Partial<Record<PolicySlot, Readonly<Record<string, PolicySpec>>>>> = {
  routing: {
    program: starlark(`def rate(request, cluster, instance):
    crowded = 1.0 * instance.inFlight - cluster.minInFlight
    cached = 0.5 * instance.prefixAffinity / (1.0 + 0.5 * crowded)
    return cached + 0.5 / (1.0 + instance.inFlight)

def score(request, cluster, instances):
    return [rate(request, cluster, instance) for instance in instances]
`),
    work: starlark(`def rate(request, cluster, instance):
    uncached = request.promptTokens * (1.0 - instance.prefixAffinity)
    return 0.0 - 2.0 * uncached - 1.0 * instance.inFlightTokens - 256.0 * instance.inFlight

def score(request, cluster, instances):
    return [rate(request, cluster, instance) for instance in instances]
`),
    tree: {
      type: 'decisionTree',
      root: {
        condition: { feature: 'instance.prefixAffinity', comparison: '>', value: 0.3 },
        trueChild: {
          condition: { feature: 'instance.inFlight', comparison: '>', value: 8 },
          trueChild: { action: 'load-balance', value: 1 },
          falseChild: { action: 'prefix-affinity', value: 1 },
        },
        falseChild: { action: 'load-balance', value: 1 },
      },
    },
  },
  admission: {
    program: starlark(`def admit(request, cluster, instances):
    limit = 20.0 + 10.0 * request.classPriority
    if cluster.inFlight / (1.0 + len(instances)) > limit and request.classPriority < 3.0:
        return "reject"
    return "admit"
`),
    tree: {
      type: 'decisionTree',
      root: {
        condition: { feature: 'request.classPriority', comparison: '>=', value: 3 },
        trueChild: { action: 'admit' },
        falseChild: {
          condition: { feature: 'cluster.inFlight', comparison: '>', value: 64 },
          trueChild: { action: 'reject' },
          falseChild: { action: 'admit' },
        },
      },
    },
  },
  priority: {
    program: starlark(`def prioritise(request, cluster):
    return 1.0 * request.classPriority - request.promptTokens / 100000.0
`),
  },
  instanceScheduler: {
    program: starlark(`def on_arrival(request):
    return 1000.0 * request.rank + 0.1 * (request.promptTokens - 16.0 * request.cachedBlocks)
`),
    batches: starlark(`def urgency(request):
    return 1000.0 * request.rank + 0.1 * request.uncachedTokens - 0.001 * request.waitedUs

def make_batch(requests, instance):
    return [urgency(request) for request in requests]

def worth(request):
    return 1.0 * request.computedTokens + 64.0 * request.preemptions - 1000.0 * request.rank

def select_preemption_victim(requests, instance):
    return [0.0 - worth(request) for request in requests]
`),
    tree: {
      type: 'decisionTree',
      entrypoint: 'make_batch',
      root: {
        condition: { feature: 'request.uncachedTokens', comparison: '<', value: 512 },
        trueChild: { action: 'rank', value: 0 },
        falseChild: {
          condition: { feature: 'request.waitedUs', comparison: '>', value: 1_000_000 },
          trueChild: { action: 'rank', value: 0 },
          falseChild: { action: 'rank', value: 1 },
        },
      },
    },
  },
};

/** Texts of the plain programs of a slot. */
function plainPrograms(slot: PolicySlot): string[] {
  return Object.values(plain[slot] ?? {}).flatMap((spec) => (spec.type === 'code' ? [spec.source] : []));
}

/** The first policies of a search. Presets come first, in the order of the slots. */
export function firstPolicies(slots: readonly PolicySlot[]): PolicyBundle[] {
  checkInputs({ slots }, { slots: is.list(is.text()) });
  const named = [...presets].filter(([name]) => slots.some((slot) => name.startsWith(`${slot}/`)));
  const own = slots.flatMap((slot) =>
    Object.entries(plain[slot] ?? {}).map(([name, spec]): PolicyBundle => {
      return { ...baseline, name: `${slot}/${name}`, ...withItsScheduler(slot, spec) };
    }),
  );
  return [...named.map(([, bundle]) => bundle), ...own];
}

// The material of each slot, made from the tables by which policies are bound.

type AnyFeature = Feature<never>;

/** Largest threshold that the search draws, by the unit of the feature: usual values lie below. */
const reach: Readonly<Record<string, number>> = {
  requests: 64,
  tokens: 16_384,
  blocks: 1024,
  'blocks/s': 1000,
  '0..1': 1,
  '1/s': 200,
  µs: 10_000_000,
};

/** Usual value of a feature, by its unit; of other units 1. */
const usual: Readonly<Record<string, number>> = {
  requests: 4,
  tokens: 1024,
  blocks: 64,
  'blocks/s': 64,
  '1/s': 16,
  µs: 1_000_000,
};

/** Points in simulated time, which mean nothing by themselves. */
const LEFT_OUT = ['nowUs', 'deadlineUs'];

function featureOf(slot: PolicySlot, name: string): AnyFeature {
  const [group, field] = name.split('.');
  return slotContracts[slot].groups[group][field];
}

function rangeOf(name: string, { kind, unit }: AnyFeature): TreeFeature {
  if (kind === 'bool') return { name, min: 0, max: 1 };
  if (/[pP]riority$/.test(name)) return { name, min: -4, max: 5 };
  return { name, min: 0, max: reach[unit] ?? 16 };
}

/** The range of a leaf's number. A factor may be negative; other numbers reach as far as their unit does. */
function actionOf(name: string, value: string, unit: string): TreeAction {
  if (value === 'none') return { name };
  if (unit.startsWith('factor')) return { name, min: -2, max: 4 };
  if (unit === 'µs') return { name, min: 1000, max: 2_000_000 };
  if (unit.startsWith('replicas')) return { name, min: 1, max: 8 };
  return { name, min: -4, max: 4 };
}

function vocabularyOf(slot: PolicySlot): TreeVocabulary | undefined {
  const { actions, functions } = slotContracts[slot];
  if (functions.length === 0) return undefined;
  const features = treeFeatures(slot).filter((name) => !LEFT_OUT.includes(name.split('.')[1]));
  return {
    features: features.map((name) => rangeOf(name, featureOf(slot, name))),
    actions: Object.entries(actions).map(([name, { value, unit }]) => actionOf(name, value, unit)),
  };
}

function numbersIn(features: FeatureTable<never>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(features).flatMap(([name, { kind, unit }]) =>
      kind === 'text' || kind === 'bool' || LEFT_OUT.includes(name) ? [] : [[name, usual[unit] ?? 1]],
    ),
  );
}

/** Fields of a program's arguments. An element of a list is called by the singular: `instance`. */
function fieldsOf(slot: PolicySlot): ProgramFields {
  const inputs = slotContracts[slot].functions.flatMap(({ arguments: each }) => each);
  return Object.fromEntries(
    inputs.map(({ name, features, isList }) => [isList ? name.replace(/s$/, '') : name, numbersIn(features)]),
  );
}

function guideOf(slot: PolicySlot): SlotGuide {
  const fields = fieldsOf(slot);
  const tree = vocabularyOf(slot);
  return {
    rulesOf: (template) => slotContracts[slot].templates.describe(template).parameters,
    ...(tree === undefined ? {} : { tree }),
    fields,
    favoured: fieldsRead(plainPrograms(slot), fields),
  };
}

export const slotGuides: SlotGuides = Object.fromEntries(policySlots.map((slot) => [slot, guideOf(slot)]));

/**
 * The best bundle with each policy of the presets in its slot: the score of a preset beside the usual policies of other
 * slots says little about its score beside good ones.
 * @returns a candidate for each policy of each searched slot, except the policies of the best bundle
 */
export function presetsInContext(
  best: Individual,
  presets: readonly Individual[],
  slots: readonly PolicySlot[],
): Candidate[] {
  const known = new Set([contentKey(best.bundle)]);
  const made: Candidate[] = [];
  for (const slot of slots) {
    for (const preset of presets) {
      const spec = preset.bundle[slot];
      if (spec === undefined) continue;
      const bundle = { ...schedulerOf(slot, preset.bundle), ...best.bundle, [slot]: spec };
      if (known.has(contentKey(bundle))) continue;
      known.add(contentKey(bundle));
      const changes = [`${slot}: ${nameOfSpec(spec)}`];
      made.push({ bundle, origin: 'crossing', parents: [best.id, preset.id], changes });
    }
  }
  return made;
}
