/**
 * An evaluator without simulation. The routing slot is scored by how near its decisions are to those of a
 * known rule over some requests; the priority slot by how near its number is to 7. Two objectives pull apart:
 * nearness, and size.
 */

import type { PolicyBundle, PolicySpec, TreeNode } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import type { Evaluation, Evaluator, SuiteName } from '../../../src/policy/evolve/fitness/evaluation.ts';
import { policyNodes } from '../../../src/policy/evolve/fitness/objectives.ts';
import { contentKey, type SlotGuides } from '../../../src/policy/evolve/search/individual.ts';
import { isBranch } from '../../../src/policy/evolve/search/trees.ts';
import { PolicyError } from '../../../src/policy/sandbox/program.ts';
import { StarlarkProgram } from '../../../src/policy/sandbox/starlark/starlarkPolicy.ts';
import { RecordShape, StarFloat, StarRecord } from '../../../src/policy/sandbox/starlark/value.ts';
import type { ParameterRules } from '../../../src/sim/control/registry.ts';
import { GoRandom } from '../../../src/sim/random/goRand.ts';

const rules: ParameterRules = {
  load: { kind: 'number', default: 1, min: 0, max: 8 },
  cache: { kind: 'number', default: 1, min: 0, max: 8 },
  bonus: { kind: 'number', default: 0, min: 0, max: 10, integer: true },
};

export const guides: SlotGuides = {
  routing: {
    rulesOf: () => rules,
    tree: {
      features: [
        { name: 'load', min: 0, max: 10 },
        { name: 'cache', min: 0, max: 1 },
      ],
      actions: [{ name: 'score', min: -10, max: 10 }],
    },
    fields: { x: { cache: 1, load: 4 } },
    favoured: { x: { load: 4 } },
  },
  priority: { rulesOf: () => ({ level: { kind: 'number', default: 0, min: 0, max: 10, integer: true } }) },
};

const priority: PolicySpec = { type: 'parameterized', template: 'constant', parameters: { level: 0 } };

export const presets: readonly PolicyBundle[] = [
  { name: 'numbers', priority, routing: { type: 'parameterized', template: 'sum', parameters: {} } },
  {
    name: 'program',
    priority,
    routing: {
      type: 'code',
      language: 'starlark',
      source: 'def score(x):\n    return 1.0 * x.cache - 1.0 * x.load\n',
    },
  },
  {
    name: 'tree',
    priority,
    routing: {
      type: 'decisionTree',
      root: {
        condition: { feature: 'load', comparison: '>', value: 2 },
        trueChild: { action: 'score', value: 0 },
        falseChild: { action: 'score', value: 1 },
      },
    },
  },
];

const shape = new RecordShape('x', { load: 'float', cache: 'float' });

type Inputs = { readonly load: number; readonly cache: number };

function inputsOf(suite: SuiteName): Inputs[] {
  const random = new GoRandom({ train: 1n, validation: 2n, hidden: 3n }[suite]);
  return Array.from({ length: 40 }, () => ({ load: 10 * random.float64(), cache: random.float64() }));
}

/** The rule to be found. */
function wanted({ load, cache }: Inputs): number {
  return 6 * cache - 0.5 * load + (load > 6 ? -2 : 0);
}

function routingOf(spec: PolicySpec | undefined): (inputs: Inputs) => number {
  if (spec?.type === 'parameterized') {
    const { load = 1, cache = 1, bonus = 0 } = spec.parameters as Record<string, number>;
    return (x) => cache * x.cache - load * x.load + (x.load < 6 ? bonus : 0);
  }
  if (spec?.type === 'decisionTree') return (x) => walk(spec.root, x);
  if (spec?.type !== 'code') throw new PolicyError('contract', 'the bundle has no routing program');
  const instance = new StarlarkProgram(spec.source).instantiate({ steps: 10_000 });
  const score = instance.function('score', 1);
  return ({ load, cache }) => {
    const value = instance.call(score, [new StarRecord(shape, [load, cache])]);
    return typeof value === 'object' && value instanceof StarFloat ? value.value : Number(value);
  };
}

function walk(node: TreeNode, x: Inputs): number {
  if (!isBranch(node)) return node.value ?? 0;
  const value = x[node.condition.feature as keyof Inputs];
  const { comparison, value: bound } = node.condition;
  const holds = {
    '<': value < bound,
    '<=': value <= bound,
    '>': value > bound,
    '>=': value >= bound,
    '==': value === bound,
    '!=': value !== bound,
  };
  return walk(holds[comparison] ? node.trueChild : node.falseChild, x);
}

function evaluateOne(bundle: PolicyBundle, suite: SuiteName): Evaluation {
  const policyId = contentKey(bundle);
  try {
    const route = routingOf(bundle.routing);
    let error = 0;
    let highest = 0;
    for (const inputs of inputsOf(suite)) {
      const value = route(inputs);
      if (!Number.isFinite(value)) throw new PolicyError('invalid_decision', 'no number comes out');
      error += Math.min(100, (value - wanted(inputs)) ** 2) / 40;
      highest = Math.max(highest, value);
    }
    const level =
      bundle.priority?.type === 'parameterized' ? Number(bundle.priority.parameters.level ?? 0) : 0;
    const score = -error - Math.abs(level - 7);
    return { policyId, score, objectives: [score, -policyNodes(bundle)], metrics: { highest } };
  } catch (error) {
    if (!(error instanceof PolicyError)) throw error;
    const { kind, problem } = error;
    return {
      policyId,
      score: -Infinity,
      objectives: [-Infinity, 0],
      metrics: {},
      error: { kind, message: problem },
    };
  }
}

/** Two settings with four seeds; what a case asks is the same up to an offset that all candidates meet. */
const cases = ['rule/near', 'rule/far'].flatMap((setting) =>
  [1, 2, 3, 4].map((seed) => `${setting}/${seed}`),
);

function onCases(evaluation: Evaluation, ids: readonly string[]): Evaluation {
  if (evaluation.error !== undefined) return evaluation;
  const { score, objectives, metrics } = evaluation;
  return { ...evaluation, cases: ids.map((id) => ({ id, score: score - id.length, objectives, metrics })) };
}

/** Answers come from `workers` lanes that take turns in an order of their own. */
export class AnalyticEvaluator implements Evaluator {
  readonly objectiveNames: readonly string[] = ['nearness', 'smallness'];
  readonly asked: { suite: SuiteName; count: number; cases: number }[] = [];
  readonly #workers: number;

  constructor(workers: number) {
    this.#workers = workers;
  }

  caseIds(): readonly string[] {
    return cases;
  }

  async evaluate(
    bundles: readonly PolicyBundle[],
    suite: SuiteName,
    signal?: AbortSignal,
    ids: readonly string[] = cases,
  ): Promise<readonly Evaluation[]> {
    this.asked.push({ suite, count: bundles.length, cases: ids.length });
    const answers: Evaluation[] = new Array(bundles.length);
    let next = 0;
    const lane = async (number: number): Promise<void> => {
      while (next < bundles.length) {
        signal?.throwIfAborted();
        const at = next++;
        for (let turn = 0; turn < number; turn++) await Promise.resolve();
        answers[at] = onCases(evaluateOne(bundles[at], suite), ids);
      }
    };
    await Promise.all(Array.from({ length: this.#workers }, (_, number) => lane(number)));
    return answers;
  }
}
