/** Which requests met the targets of their class. Requests that were turned away did not. */

import {
  classOf,
  meetsTargets,
  metTargets,
  type RequestTable,
  Status,
  type TargetsByClass,
} from '../../sim/metrics/index.ts';

export { classOf, meetsTargets };

/** Weights of the published admission experiment; other classes count 1. */
const classWeights: Readonly<Record<string, number>> = { critical: 4, standard: 2, sheddable: 1, batch: 0.5 };
/** Classes whose rejected requests are not held against a policy there. */
const sheddable = ['sheddable', 'batch', 'background'];

export interface Attainment {
  /** Over all requests of classes with targets; 1 without any. */
  readonly overall: number;
  readonly byClass: Readonly<Record<string, number>>;
  /** Of each target alone: `critical.ttft`. */
  readonly byTarget: Readonly<Record<string, number>>;
  /** Mean by class weight, without rejected requests of sheddable classes; 1 without any. */
  readonly weighted: number;
}

export function attainmentOf(table: RequestTable, targets: TargetsByClass): Attainment {
  const counts = new Map<string, { all: number; met: number; kept: number }>();
  const single = new Map<string, number>();
  for (let row = 0; row < table.size; row++) {
    const name = classOf(table, row);
    if (!Object.hasOwn(targets, name)) continue;
    const count = counts.get(name) ?? { all: 0, met: 0, kept: 0 };
    counts.set(name, count);
    count.all++;
    if (meetsTargets(table, row, targets)) count.met++;
    for (const [target, isMet] of Object.entries(metTargets(table, row, targets))) {
      const key = `${name}.${target}`;
      single.set(key, (single.get(key) ?? 0) + Number(isMet));
    }
    if (table.status[row] !== Status.REJECTED || !sheddable.includes(name)) count.kept++;
  }
  let all = 0;
  let met = 0;
  let weights = 0;
  let weighted = 0;
  const byClass: Record<string, number> = {};
  const byTarget: Record<string, number> = {};
  for (const [name, count] of [...counts].sort(([a], [b]) => (a < b ? -1 : 1))) {
    all += count.all;
    met += count.met;
    byClass[name] = count.met / count.all;
    for (const target of ['ttft', 'tpot', 'e2e']) {
      const key = `${name}.${target}`;
      const alone = single.get(key);
      if (alone !== undefined) byTarget[key] = alone / count.all;
    }
    const weight = classWeights[name] ?? 1;
    weights += weight;
    weighted += weight * (count.kept === 0 ? 1 : count.met / count.kept);
  }
  return {
    overall: all === 0 ? 1 : met / all,
    byClass,
    byTarget,
    weighted: weights === 0 ? 1 : weighted / weights,
  };
}
