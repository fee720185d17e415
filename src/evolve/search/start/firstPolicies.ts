/**
 * Where a search begins: the presets of the searched slots, and for slots that take them plain programs and
 * a plain tree, so that there is something for their mutations to start from. All of them are to be beaten.
 */

import {
  baseline,
  type PolicyBundle,
  type PolicySlot,
  type PolicySpec,
  presets,
  withItsScheduler,
} from '../../bundle/index.ts';

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
export function plainPrograms(slot: PolicySlot): string[] {
  return Object.values(plain[slot] ?? {}).flatMap((spec) => (spec.type === 'code' ? [spec.source] : []));
}

/** Bundles by name, each once. The presets stand first, in the order of the slots. */
export function firstPolicies(slots: readonly PolicySlot[]): PolicyBundle[] {
  const named = [...presets].filter(([name]) => slots.some((slot) => name.startsWith(`${slot}/`)));
  const own = slots.flatMap((slot) =>
    Object.entries(plain[slot] ?? {}).map(([name, spec]): PolicyBundle => {
      return { ...baseline, name: `${slot}/${name}`, ...withItsScheduler(slot, spec) };
    }),
  );
  return [...named.map(([, bundle]) => bundle), ...own];
}
