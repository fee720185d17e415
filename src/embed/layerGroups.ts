/**
 * Which layers share a unit. Without groups a block is one unit over all layers. With groups each block is
 * several units, each a content of its own with its own key, size, residency and readiness: the layers of a
 * sliding window beside those of full attention, or groups that are loaded one after the other while earlier
 * ones compute.
 */

import { configError, described } from '../runtime/errors.ts';
import { choosePageBytes, type KVLayout, requireKVLayout } from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';

/** A group of layers, [first, end). */
export interface LayerGroup {
  readonly first: number;
  readonly end: number;
}

const layerGroupTable = optionTable(
  { first: is.passed(), end: is.passed() } satisfies Kinds<LayerGroup>,
  'TKV_CONFIG',
);

export interface GroupUnits {
  readonly groups: readonly LayerGroup[];
  /** Bytes of a unit of each size class. */
  readonly unitBytes: readonly number[];
  readonly sizeClass: readonly number[];
  readonly pageBytes: number;
}

/** @throws TKV_CONFIG when the groups are not all layers once, in order */
export function groupUnits(layout: KVLayout, layerGroups: readonly LayerGroup[] | undefined): GroupUnits {
  requireKVLayout(layout);
  const groups = layerGroups ?? [{ first: 0, end: layout.layers }];
  is.array('Pass [{ first, end }, ...].').read(groups, 'layerGroups', 'TKV_CONFIG');
  let next = 0;
  for (const [i, group] of groups.entries()) {
    const { first, end } = layerGroupTable.read(group, `layerGroups[${i}]`);
    if (first !== next || !Number.isInteger(end) || end <= first || end > layout.layers) {
      throw configError(
        `layerGroups[${i}]`,
        `is layers ${described(first)} to ${described(end)}, where layers from ${next} on are to follow`,
        `Name all ${layout.layers} layers once, in order.`,
      );
    }
    next = end;
  }
  if (next !== layout.layers) {
    throw configError(
      'layerGroups',
      `end at layer ${next}`,
      `Name all ${layout.layers} layers once, in order.`,
    );
  }
  const bytes = groups.map(({ first, end }) => (end - first) * layout.layerStrideBytes);
  const unitBytes = [...new Set(bytes)];
  return {
    groups,
    unitBytes,
    sizeClass: bytes.map((each) => unitBytes.indexOf(each)),
    pageBytes:
      unitBytes.length === 1 ? unitBytes[0] : choosePageBytes(unitBytes, { alignmentBytes: 256 }).pageBytes,
  };
}
