/**
 * The numbers of a bundle as a point of the unit cube: parameters of named policies within their rules,
 * thresholds and numbers of decision trees, and the numbers that stand in a program. A bundle's structure,
 * which is all but these, stays as it is.
 */

import type { ParameterValue } from '../../../sim/control/index.ts';
import type { ParameterRules } from '../../../sim/control/registry/index.ts';
import type { PolicyBundle, PolicySlot, PolicySpec, TreeNode } from '../../bundle/policyBundle.ts';
import { policySlots } from '../../bundle/policyBundle.ts';
import { type Fields, numbersOf, withNumbers } from '../programs/index.ts';
import { isBranch, nodesOf, replaceNode, type TreeVocabulary } from '../trees/index.ts';
import { type Scale, scaleOfLiteral, scaleOfRule, stepOf, toUnit, toValue } from './scale.ts';

/** What search may know of a slot. */
export interface SlotGuide {
  /** Parameters of the slot's named policies. */
  rulesOf(template: string): ParameterRules;
  /** What its decision trees are made of. */
  readonly tree?: TreeVocabulary;
  /** Fields that its programs may read, by the name of the variable, with a usual value of each. */
  readonly fields?: Fields;
  /** Those of them that matter most often. */
  readonly favoured?: Fields;
}

export type SlotGuides = Readonly<Partial<Record<PolicySlot, SlotGuide>>>;

/** One coordinate: its value in a bundle, its scale, and how it is put into one. */
interface Axis {
  readonly scale: Scale;
  readonly value: number;
  /** Whether it is a weight, of which 0 means that its scorer is not asked. */
  readonly isWeight?: boolean;
  put(spec: PolicySpec, value: number): PolicySpec;
}

/** Weights below this share of the greatest allowed are left out of the sum. */
const LEAST_WEIGHT = 0.02;

export class NumberSpace {
  readonly #bundle: PolicyBundle;
  readonly #axes: readonly (readonly [PolicySlot, Axis])[];

  /**
   * @param slots those whose numbers are searched
   * @param reach `all` numbers that there may be, or those `inUse`: no choices, no weights of 0, nothing that
   *   is off. In few dimensions a search gets on faster; what is off is turned on by variation.
   */
  constructor(
    bundle: PolicyBundle,
    guides: SlotGuides,
    slots: readonly PolicySlot[] = policySlots,
    reach: 'all' | 'inUse' = 'all',
  ) {
    this.#bundle = bundle;
    this.#axes = slots.flatMap((slot) => {
      const spec = bundle[slot];
      const guide = guides[slot];
      if (spec === undefined || guide === undefined) return [];
      const axes = axesOf(spec, guide);
      return (reach === 'all' ? axes : axes.filter(isInUse)).map((axis) => [slot, axis] as const);
    });
  }

  get dimensions(): number {
    return this.#axes.length;
  }

  /** The bundle's own point. */
  get point(): number[] {
    return this.#axes.map(([, { scale, value }]) => toUnit(scale, value));
  }

  /** Standard deviation below which a coordinate would be frozen: of integers and choices, half a step. */
  get leastDeviation(): number[] {
    return this.#axes.map(([, { scale }]) => stepOf(scale) / 2);
  }

  /** The bundle with the numbers of another point. */
  at(point: readonly number[]): PolicyBundle {
    const specs: Partial<Record<PolicySlot, PolicySpec>> = {};
    this.#axes.forEach(([slot, axis], i) => {
      // the slot has a spec, or it would have no axis
      const spec = specs[slot] ?? (this.#bundle[slot] as PolicySpec);
      specs[slot] = axis.put(spec, toValue(axis.scale, point[i]));
    });
    return { ...this.#bundle, ...specs };
  }
}

function isInUse({ scale, value, isWeight }: Axis): boolean {
  if (scale.kind === 'choice') return false;
  if (scale.kind === 'logarithmic' && value === scale.beyond) return false;
  return isWeight !== true || value > 0;
}

function axesOf(spec: PolicySpec, guide: SlotGuide): Axis[] {
  switch (spec.type) {
    case 'parameterized':
      return parameterAxes(spec.parameters, guide.rulesOf(spec.template));
    case 'decisionTree':
      return guide.tree === undefined ? [] : treeAxes(spec.root, guide.tree);
    case 'code':
      return spec.language === 'starlark' ? programAxes(spec.source) : [];
  }
}

function putParameter(spec: PolicySpec, name: string, value: ParameterValue): PolicySpec {
  if (spec.type !== 'parameterized') return spec;
  return { ...spec, parameters: { ...spec.parameters, [name]: value } };
}

function parameterAxes(given: Readonly<Record<string, ParameterValue>>, rules: ParameterRules): Axis[] {
  const isOn = (name: string): boolean => (given[name] ?? rules[name].default) !== rules[name].default;
  return Object.entries(rules).flatMap(([name, rule]) => {
    // it would decide nothing
    if (rule.kind === 'number' && rule.with !== undefined && !rule.with.some(isOn)) return [];
    return axesOfRule(name, given[name] ?? rule.default, rule);
  });
}

function axesOfRule(name: string, value: ParameterValue, rule: ParameterRules[string]): Axis[] {
  switch (rule.kind) {
    case 'number': {
      const put = (spec: PolicySpec, each: number): PolicySpec => putParameter(spec, name, each);
      return [{ scale: scaleOfRule(rule), value: Number(value), put }];
    }
    case 'flag': {
      const put = (spec: PolicySpec, each: number): PolicySpec => putParameter(spec, name, each === 1);
      return [{ scale: { kind: 'choice', count: 2 }, value: value === true ? 1 : 0, put }];
    }
    case 'choice': {
      const scale: Scale = { kind: 'choice', count: rule.names.length };
      const put = (spec: PolicySpec, each: number): PolicySpec => putParameter(spec, name, rule.names[each]);
      return [{ scale, value: Math.max(0, rule.names.indexOf(String(value))), put }];
    }
    case 'numbers':
      // what names mean that no rule lists (tenants, classes) search does not know
      return rule.names === undefined || typeof value !== 'object' ? [] : weightAxes(name, value, rule);
  }
}

/**
 * A weight for each name, from 0, where the name is left out, to twice the greatest that is given. The names
 * that are given come first, in their order, since some policies go by it.
 */
function weightAxes(
  parameter: string,
  weights: Readonly<Record<string, number>>,
  { names = [] }: ParameterRules[string] & { kind: 'numbers' },
): Axis[] {
  const order = [...Object.keys(weights), ...names.filter((name) => !(name in weights))];
  const max = 2 * Math.max(0.5, ...Object.values(weights));
  return order.map((name): Axis => {
    const put = (spec: PolicySpec, weight: number): PolicySpec => {
      const before = spec.type === 'parameterized' ? spec.parameters[parameter] : undefined;
      const known = typeof before === 'object' ? before : weights;
      const changed: Record<string, number> = {};
      for (const each of order) {
        const value = each === name ? weight : (known[each] ?? 0);
        if (value >= LEAST_WEIGHT * max) changed[each] = value;
      }
      // one weight at least has to stay
      return Object.keys(changed).length === 0 ? spec : putParameter(spec, parameter, changed);
    };
    const scale: Scale = { kind: 'linear', min: 0, max, isInteger: false };
    return { scale, value: weights[name] ?? 0, isWeight: true, put };
  });
}

function treeAxes(root: TreeNode, { features, actions }: TreeVocabulary): Axis[] {
  return nodesOf(root).flatMap((node, at): Axis[] => {
    const put = (spec: PolicySpec, changed: (old: TreeNode) => TreeNode): PolicySpec => {
      if (spec.type !== 'decisionTree') return spec;
      return { ...spec, root: replaceNode(spec.root, at, changed(nodesOf(spec.root)[at])) };
    };
    if (isBranch(node)) {
      const range = features.find(({ name }) => name === node.condition.feature);
      if (range === undefined) return [];
      const scale: Scale = { kind: 'linear', min: range.min, max: range.max, isInteger: false };
      return [
        {
          scale,
          value: node.condition.value,
          put: (spec, value) =>
            put(spec, (old) => (isBranch(old) ? { ...old, condition: { ...old.condition, value } } : old)),
        },
      ];
    }
    const action = actions.find(({ name }) => name === node.action);
    if (node.value === undefined || action?.min === undefined || action.max === undefined) return [];
    const scale: Scale = { kind: 'linear', min: action.min, max: action.max, isInteger: false };
    return [{ scale, value: node.value, put: (spec, value) => put(spec, (old) => ({ ...old, value })) }];
  });
}

/** Numbers of a program: each from an eighth to eight times itself. A zero stays. */
function programAxes(source: string): Axis[] {
  return numbersOf(source).flatMap((value, at): Axis[] => {
    const scale = scaleOfLiteral(value);
    if (scale === undefined) return [];
    const put = (spec: PolicySpec, each: number): PolicySpec => {
      if (spec.type !== 'code') return spec;
      const numbers = numbersOf(spec.source);
      numbers[at] = each;
      return { ...spec, source: withNumbers(spec.source, numbers) };
    };
    return [{ scale, value, put }];
  });
}
