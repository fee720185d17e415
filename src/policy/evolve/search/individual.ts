/**
 * Evaluated bundles, and the ways to make a child of a bundle: move its numbers, add a term to a program, or change
 * one slot or two. Every child names its parents and its changes.
 */

import type { ParameterValue } from '../../../sim/control/policy.ts';
import type { NumberRule, ParameterRules } from '../../../sim/control/registry.ts';
import * as elementary from '../../../sim/random/elementary.ts';
import type { GoRandom } from '../../../sim/random/goRand.ts';
import {
  type PolicyBundle,
  type PolicySlot,
  type PolicySpec,
  policySlots,
  type TreeNode,
} from '../bundle/policyBundle.ts';
import type { Evaluation, EvaluationError } from '../fitness/evaluation.ts';
import { policyNodes } from '../fitness/objectives.ts';
import {
  crossPrograms,
  mutateProgram,
  numbersOf,
  type ProgramFields,
  withNumbers,
  withOneMoreTerm,
} from './programs.ts';
import { isBranch, nodesOf, replaceNode, type TreeVocabulary } from './trees.ts';

// An individual is an evaluated bundle: a line of the lineage.

/** The emitter that made a bundle. */
type Origin = 'preset' | 'crossing' | 'cma' | 'variation';

/** One candidate of a search, with its bundle and its scores. */
export interface Individual {
  /** Content hash of the bundle. */
  readonly id: string;
  readonly bundle: PolicyBundle;
  readonly generation: number;
  readonly origin: Origin;
  /** Ids of its parents. */
  readonly parents: readonly string[];
  /** The search ranks by it: three quarters of the smallest lead and one quarter of the mean lead. */
  readonly score: number;
  /** Lead over the best preset of each setting; empty where it failed. */
  readonly leads: Readonly<Record<string, number>>;
  /** Number of cases that it ran on; a race stops weak candidates early. */
  readonly cases: number;
  /** Digest of its scores on the first rung, '' where it failed. Individuals of one behaviour decide alike. */
  readonly behaviour: string;
  /** Id of an earlier individual of the same behaviour. The race stopped this one, and it has the other's standing. */
  readonly echoOf?: string;
  /** Mean gain over the baseline on its cases. */
  readonly gain: number;
  readonly objectives: readonly number[];
  readonly metrics: Readonly<Record<string, number>>;
  readonly error?: EvaluationError;
}

/** A bundle before its evaluation. */
export interface Candidate {
  readonly bundle: PolicyBundle;
  readonly origin: Origin;
  readonly parents: readonly string[];
  /** Its changes, a line each. */
  readonly changes: readonly string[];
}

/** JSON keeps no infinities, so a score that is not finite becomes the worst finite one. */
function finite(value: number): number {
  return Number.isFinite(value) ? value : -Number.MAX_VALUE;
}

export function individualOf(
  candidate: Candidate,
  generation: number,
  evaluation: Evaluation,
  standing: Pick<Individual, 'score' | 'leads' | 'cases' | 'behaviour'>,
): Individual {
  const { bundle, origin, parents } = candidate;
  const { policyId, score: gain, objectives, metrics, error } = evaluation;
  const { score, leads, cases, behaviour } = standing;
  return {
    id: policyId,
    bundle,
    generation,
    origin,
    parents,
    score: finite(score),
    leads,
    cases,
    behaviour,
    gain: finite(gain),
    objectives: objectives.map(finite),
    metrics: { ...metrics, policy_nodes: policyNodes(bundle) },
    ...(error === undefined ? {} : { error }),
  };
}

/** The individual of a candidate that decides as `known` does: it has the standing of `known`. */
export function echoOf(known: Individual, candidate: Candidate, generation: number, id: string): Individual {
  const { bundle, origin, parents } = candidate;
  const metrics = { ...known.metrics, policy_nodes: policyNodes(bundle) };
  return { ...known, id, bundle, generation, origin, parents, metrics, echoOf: known.id };
}

/**
 * Text of the policies of a bundle: equal texts decide alike. Weights in another order give another text, since their
 * order changes the decisions of some policies.
 */
export function contentKey(bundle: PolicyBundle): string {
  return JSON.stringify(policySlots.map((slot) => bundle[slot] ?? null));
}

/** Template, language, or `tree`; `-` for an empty slot. */
export function nameOfSpec(spec: PolicySpec | undefined): string {
  switch (spec?.type) {
    case undefined:
      return '-';
    case 'parameterized':
      return spec.template;
    case 'decisionTree':
      return 'tree';
    case 'code':
      return spec.language;
  }
}

// Kinds of bundles. Bundles of one kind differ in numbers, or within a program or tree.

/** Template, language or `tree` of each slot, as one text. */
export function kindOf(bundle: PolicyBundle, slots: readonly PolicySlot[]): string {
  return slots.map((slot) => nameOfSpec(bundle[slot])).join(' ');
}

/**
 * The first `count` individuals that decide differently, at most `most` of one kind: near relatives of the best add
 * little.
 */
export function ofManyKinds(
  ranking: readonly Individual[],
  count: number,
  most: number,
  slots: readonly PolicySlot[],
): Individual[] {
  const ofKind = new Map<string, number>();
  const behaviours = new Set<string>();
  const found: Individual[] = [];
  for (const individual of ranking) {
    if (found.length === count) break;
    const { bundle, behaviour } = individual;
    const kind = kindOf(bundle, slots);
    const before = ofKind.get(kind) ?? 0;
    if (before === most || behaviours.has(behaviour)) continue;
    ofKind.set(kind, before + 1);
    behaviours.add(behaviour);
    found.push(individual);
  }
  return found;
}

/**
 * The best bundle with each child of a program in its slot. For each slot, these are the children with one more term
 * of the first program in the ranking that reads a field. They run beside the best policies of the other slots,
 * which shows their worth.
 *
 * @param ranking the best first; not empty
 */
export function bundlesWithOneMoreTerm(
  ranking: readonly Individual[],
  slots: readonly PolicySlot[],
  guides: SlotGuides,
): Candidate[] {
  const [best] = ranking;
  return slots.flatMap((slot) => {
    for (const { id, bundle } of ranking) {
      const children = childrenOf(bundle[slot], guides[slot]);
      if (children.length === 0) continue;
      return children.map(({ spec, changes }): Candidate => {
        return {
          bundle: { ...best.bundle, [slot]: spec },
          origin: 'variation',
          parents: [...new Set([best.id, id])],
          changes: changes.map((change) => `${slot}: ${change}`),
        };
      });
    }
    return [];
  });
}

function childrenOf(
  spec: PolicySpec | undefined,
  { fields = {}, favoured = {} }: Partial<SlotGuide> = {},
): { readonly spec: PolicySpec; readonly changes: readonly string[] }[] {
  if (spec?.type !== 'code' || spec.language !== 'starlark') return [];
  return withOneMoreTerm(spec.source, fields, favoured).map(({ source, changes }) => {
    return { spec: { ...spec, source }, changes };
  });
}

// Scales between the values of a number and the interval from 0 to 1.

type Scale =
  | { readonly kind: 'linear'; readonly min: number; readonly max: number; readonly isInteger: boolean }
  /** Equal steps are equal factors. `min` is above 0. */
  | {
      readonly kind: 'logarithmic';
      readonly min: number;
      readonly max: number;
      readonly isInteger: boolean;
      /** Value of the uppermost tenth of the interval: it means "no limit" or "off". */
      readonly beyond?: number;
    }
  /** One of the numbers from 0 to `count` - 1. */
  | { readonly kind: 'choice'; readonly count: number };

/** Smallest default that means "no limit". */
const UNLIMITED = 2 ** 40;
/** Smallest upper bound of a rule whose default 0 means "off". */
const WIDE = 2 ** 16;
/** Largest factor between the default of a rule without an upper bound and an end of its scale. */
const SPAN = 64;
/** Share of the unit interval for values; the rest stands for `beyond`. */
const BELOW_BEYOND = 0.9;

/** The scale of a rule lies within its bounds. Without bounds it reaches `SPAN` times up and down from the default. */
function scaleOfRule(rule: NumberRule): Scale {
  const isInteger = rule.integer === true;
  const least = rule.min ?? (rule.above === undefined ? -Infinity : rule.above);
  const { default: usual } = rule;
  if (usual >= UNLIMITED) {
    return { kind: 'logarithmic', min: 1, max: 4096, isInteger, beyond: usual };
  }
  if (usual === 0 && least === 0 && rule.max !== undefined && rule.max >= WIDE) {
    return { kind: 'logarithmic', min: 1, max: rule.max, isInteger, beyond: 0 };
  }
  // an exclusive lower bound
  const inside = (from: number, to: number): number =>
    rule.above !== undefined && from <= rule.above ? rule.above + (to - rule.above) / 1024 : from;
  if (usual > 0 && (rule.max === undefined || rule.max > usual * SPAN)) {
    const from = Math.max(usual / SPAN, least);
    const min = isInteger ? Math.max(1, Math.round(from)) : from;
    const max = Math.min(rule.max ?? Infinity, usual * SPAN);
    return { kind: 'logarithmic', min: inside(min, usual), max, isInteger };
  }
  const min = Number.isFinite(least) ? least : Math.min(-1, usual - 2 * Math.abs(usual));
  const max = rule.max ?? Math.max(SPAN, usual * 2);
  return { kind: 'linear', min: inside(min, max), max, isInteger };
}

/** The scale of a number in a program; undefined for 0 and for numbers that stand for infinity, which stay. */
function scaleOfLiteral(value: number): Scale | undefined {
  if (!(value > 0) || value >= 1e8) return undefined;
  return { kind: 'logarithmic', min: value / 8, max: value * 8, isInteger: false };
}

function toUnit(scale: Scale, value: number): number {
  const within = (unit: number): number => Math.min(1, Math.max(0, unit));
  switch (scale.kind) {
    case 'choice':
      return (value + 0.5) / scale.count;
    case 'linear':
      return within((value - scale.min) / (scale.max - scale.min));
    case 'logarithmic': {
      if (value === scale.beyond) return 1;
      const clipped = Math.min(scale.max, Math.max(scale.min, value));
      const unit = elementary.log(clipped / scale.min) / elementary.log(scale.max / scale.min);
      return within(scale.beyond === undefined ? unit : unit * BELOW_BEYOND);
    }
  }
}

/** @param unit from 0 to 1 */
function toValue(scale: Scale, unit: number): number {
  if (scale.kind === 'choice') return Math.min(scale.count - 1, Math.floor(unit * scale.count));
  let value: number;
  if (scale.kind === 'linear') value = scale.min + (scale.max - scale.min) * unit;
  else {
    if (scale.beyond !== undefined && unit > BELOW_BEYOND) return scale.beyond;
    const share = scale.beyond === undefined ? unit : unit / BELOW_BEYOND;
    value = scale.min * elementary.exp(share * elementary.log(scale.max / scale.min));
  }
  if (scale.isInteger) value = Math.round(value);
  else value = Number(value.toPrecision(5));
  return Math.min(scale.max, Math.max(scale.min, value));
}

/** Width of one step of an integer or a choice on the unit interval; 0 for other numbers. */
function stepOf(scale: Scale): number {
  if (scale.kind === 'choice') return 1 / scale.count;
  if (!scale.isInteger) return 0;
  if (scale.kind === 'linear') return 1 / Math.max(1, scale.max - scale.min);
  return 1 / (16 * Math.max(1, elementary.log(scale.max / scale.min)));
}

// The numbers of a bundle as a point of the unit cube: parameters of named policies within their rules, thresholds and
// values of decision trees, and literals of programs. The rest of a bundle is its structure, which stays.

/** The material of a slot for the search. */
export interface SlotGuide {
  /** Parameters of the slot's named policies. */
  rulesOf(template: string): ParameterRules;
  /** Features and actions of its decision trees. */
  readonly tree?: TreeVocabulary;
  /** Usual value of each field that its programs may read, by the name of the variable. */
  readonly fields?: ProgramFields;
  /** Fields among them that matter most often; mutations draw them half of the time. */
  readonly favoured?: ProgramFields;
}

export type SlotGuides = Readonly<Partial<Record<PolicySlot, SlotGuide>>>;

/** One coordinate: a number of a bundle with its scale. */
interface SearchAxis {
  readonly scale: Scale;
  readonly value: number;
  /** Whether it is a weight. Weight 0 turns its scorer off. */
  readonly isWeight?: boolean;
  /** The policy with another value of this number; or the place of a program's number in its text. */
  readonly put: ((spec: PolicySpec, value: number) => PolicySpec) | number;
}

/** Share of the largest allowed weight below which a weight is left out of the sum. */
const LEAST_WEIGHT = 0.02;

export class NumberSpace {
  readonly #bundle: PolicyBundle;
  readonly #slots: readonly {
    readonly slot: PolicySlot;
    readonly spec: PolicySpec;
    readonly axes: readonly SearchAxis[];
  }[];

  /**
   * @param slots slots whose numbers are coordinates
   * @param reach `all` numbers, or the numbers `inUse`: without choices, weights of 0 and values that mean "off". A
   *   search in few dimensions is faster; variation turns the others on.
   */
  constructor(
    bundle: PolicyBundle,
    guides: SlotGuides,
    slots: readonly PolicySlot[] = policySlots,
    reach: 'all' | 'inUse' = 'all',
  ) {
    this.#bundle = bundle;
    this.#slots = slots.flatMap((slot) => {
      const spec = bundle[slot];
      const guide = guides[slot];
      if (spec === undefined || guide === undefined) return [];
      const axes = axesOf(spec, guide);
      return [{ slot, spec, axes: reach === 'all' ? axes : axes.filter(isInUse) }];
    });
  }

  get #axes(): SearchAxis[] {
    return this.#slots.flatMap(({ axes }) => axes);
  }

  get dimensions(): number {
    return this.#axes.length;
  }

  /** The bundle's own point. */
  get point(): number[] {
    return this.#axes.map(({ scale, value }) => toUnit(scale, value));
  }

  /** Standard deviation below which a coordinate freezes: half a step of integers and choices, 0 of other numbers. */
  get leastDeviation(): number[] {
    return this.#axes.map(({ scale }) => stepOf(scale) / 2);
  }

  /** The bundle with the numbers of `point`. */
  at(point: readonly number[]): PolicyBundle {
    const specs: Partial<Record<PolicySlot, PolicySpec>> = {};
    let i = 0;
    for (const { slot, spec, axes } of this.#slots) {
      const values = axes.map(({ scale }) => toValue(scale, point[i++]));
      if (axes.length > 0) specs[slot] = withValues(spec, axes, values);
    }
    return { ...this.#bundle, ...specs };
  }
}

/** A program takes all values at once, since each change of its text costs a parse. */
function withValues(spec: PolicySpec, axes: readonly SearchAxis[], values: readonly number[]): PolicySpec {
  const numbers = spec.type === 'code' ? numbersOf(spec.source) : [];
  let changed = spec;
  for (const [i, { put }] of axes.entries()) {
    if (typeof put === 'number') numbers[put] = values[i];
    else changed = put(changed, values[i]);
  }
  return changed.type === 'code' ? { ...changed, source: withNumbers(changed.source, numbers) } : changed;
}

function isInUse({ scale, value, isWeight }: SearchAxis): boolean {
  if (scale.kind === 'choice') return false;
  if (scale.kind === 'logarithmic' && value === scale.beyond) return false;
  return isWeight !== true || value > 0;
}

function axesOf(spec: PolicySpec, guide: SlotGuide): SearchAxis[] {
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

function parameterAxes(given: Readonly<Record<string, ParameterValue>>, rules: ParameterRules): SearchAxis[] {
  const isOn = (name: string): boolean => (given[name] ?? rules[name].default) !== rules[name].default;
  return Object.entries(rules).flatMap(([name, rule]) => {
    // without the parameters of `with` it decides nothing
    if (rule.kind === 'number' && rule.with !== undefined && !rule.with.some(isOn)) return [];
    return axesOfRule(name, given[name] ?? rule.default, rule);
  });
}

function axesOfRule(name: string, value: ParameterValue, rule: ParameterRules[string]): SearchAxis[] {
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
      // the search cannot know the meaning of names without a rule (tenants, classes)
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
): SearchAxis[] {
  const order = [...Object.keys(weights), ...names.filter((name) => !(name in weights))];
  const max = 2 * Math.max(0.5, ...Object.values(weights));
  return order.map((name): SearchAxis => {
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

function treeAxes(root: TreeNode, { features, actions }: TreeVocabulary): SearchAxis[] {
  return nodesOf(root).flatMap((node, at): SearchAxis[] => {
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
function programAxes(source: string): SearchAxis[] {
  return numbersOf(source).flatMap((value, at): SearchAxis[] => {
    const scale = scaleOfLiteral(value);
    return scale === undefined ? [] : [{ scale, value, put: at }];
  });
}

// A child of one bundle or of two: one slot changes, at times two together, since some changes help only side by side;
// or a whole slot comes from the other parent.

interface BundleChild {
  readonly bundle: PolicyBundle;
  readonly changes: readonly string[];
  readonly usesOther: boolean;
}

interface VaryContext {
  /** Slots that search may change. */
  readonly slots: readonly PolicySlot[];
  readonly guides: SlotGuides;
  readonly random: GoRandom;
}

interface SpecChild {
  readonly spec: PolicySpec;
  readonly changes: readonly string[];
  readonly usesOther?: boolean;
}

/** Share of changes that take a whole slot from the other parent where both policies are of one type. */
const TAKE_SLOT = 0.15;
/** Share of changes that cross a program with the other parent's. */
const CROSS = 0.3;
/** Tries for each change: a draw may change nothing. */
const TRIES = 8;

/**
 * A child of `parent`.
 * @param other the other parent; without one nothing is crossed
 * @param count number of changes; several may meet the same slot
 * @returns undefined where every try left the bundle as it was
 */
export function varyBundle(
  parent: PolicyBundle,
  other: PolicyBundle | undefined,
  count: number,
  context: VaryContext,
): BundleChild | undefined {
  const { slots, random } = context;
  let bundle = parent;
  let usesOther = false;
  const changes: string[] = [];
  for (let step = 0, tries = 0; step < count && tries < TRIES * count; tries++) {
    const slot = slots[random.intn(slots.length)];
    const child = varySlot(bundle, slot, other?.[slot], context);
    if (child === undefined) continue;
    bundle = { ...bundle, [slot]: child.spec };
    changes.push(...child.changes.map((change) => `${slot}: ${change}`));
    usesOther ||= child.usesOther === true;
    step++;
  }
  return changes.length === 0 ? undefined : { bundle, changes, usesOther };
}

function varySlot(
  bundle: PolicyBundle,
  slot: PolicySlot,
  other: PolicySpec | undefined,
  context: VaryContext,
): SpecChild | undefined {
  const { random, guides } = context;
  const spec = bundle[slot];
  const dice = random.float64();
  const takes = spec === undefined || dice < TAKE_SLOT || spec.type !== other?.type;
  if (other !== undefined && takes && dice < 0.5 && JSON.stringify(other) !== JSON.stringify(spec)) {
    return { spec: other, changes: [`${nameOfSpec(other)} of the other parent`], usesOther: true };
  }
  const guide = guides[slot];
  if (spec === undefined || guide === undefined) return undefined;
  const isCross = random.float64() < CROSS;
  switch (spec.type) {
    case 'parameterized':
      return moveNumbers(bundle, slot, spec, context);
    case 'decisionTree': // CMA-ES moves its numbers
      return undefined;
    case 'code': {
      if (spec.language !== 'starlark') return undefined;
      const mate = isCross && other?.type === 'code' && other.language === 'starlark' ? other : undefined;
      const child =
        mate === undefined
          ? mutateProgram(spec.source, random, guide.fields, guide.favoured)
          : crossPrograms(spec.source, mate.source, random, guide.fields);
      return (
        child && {
          spec: { ...spec, source: child.source },
          changes: child.changes,
          usesOther: mate !== undefined,
        }
      );
    }
  }
}

/** Moves one or two numbers of the slot, by a standard deviation of 0.15 of their range. */
function moveNumbers(
  bundle: PolicyBundle,
  slot: PolicySlot,
  spec: PolicySpec,
  { guides, random }: VaryContext,
): SpecChild | undefined {
  const space = new NumberSpace(bundle, guides, [slot]);
  if (space.dimensions === 0) return undefined;
  const { point, leastDeviation } = space;
  for (let moved = 0; moved <= random.intn(2); moved++) {
    const at = random.intn(point.length);
    const deviation = Math.max(0.15, 2 * leastDeviation[at]);
    point[at] = Math.min(1, Math.max(0, point[at] + deviation * random.normFloat64()));
  }
  const changed = space.at(point)[slot];
  if (changed === undefined || JSON.stringify(changed) === JSON.stringify(spec)) return undefined;
  return { spec: changed, changes: differences(spec, changed) };
}

/** Parameters that differ, each with its new value. */
function differences(before: PolicySpec, after: PolicySpec): string[] {
  if (before.type !== 'parameterized' || after.type !== 'parameterized') return [];
  return Object.entries(after.parameters).flatMap(([name, value]) => {
    const old = before.parameters[name];
    if (JSON.stringify(old) === JSON.stringify(value)) return [];
    return [`${name} becomes ${JSON.stringify(value)}`];
  });
}
