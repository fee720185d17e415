/**
 * A child of one bundle or of two. One slot is changed, or now and then two together, since some changes help
 * only side by side; or a whole slot comes from the other parent.
 */

import type { GoRandom } from '../../../sim/random/index.ts';
import type { PolicyBundle, PolicySlot, PolicySpec } from '../../bundle/policyBundle.ts';
import { crossPrograms, mutateProgram } from '../programs/index.ts';
import { crossTrees, mutateTree } from '../trees/index.ts';
import { nameOfSpec } from './individual.ts';
import { NumberSpace, type SlotGuides } from './space.ts';

export interface BundleChild {
  readonly bundle: PolicyBundle;
  readonly changes: readonly string[];
  readonly usesOther: boolean;
}

export interface VaryContext {
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

const TAKE_SLOT = 0.15;
const CROSS = 0.3;
const TRIES = 8;

/**
 * @param count how many slots are changed, or one slot so often
 * @returns undefined where no try changed anything
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
    case 'decisionTree': {
      if (guide.tree === undefined) return undefined;
      const child =
        isCross && other?.type === 'decisionTree'
          ? crossTrees(spec.root, other.root, random)
          : mutateTree(spec.root, guide.tree, random);
      const usesOther = isCross && other?.type === 'decisionTree';
      return child && { spec: { ...spec, root: child.root }, changes: child.changes, usesOther };
    }
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

/** One or two numbers of the slot move by a tenth of their range or so. */
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
