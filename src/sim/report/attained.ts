/** What became of requests that have targets: each of them attained, missed or was turned away. */

import {
  classOf,
  meetsTargets,
  type RequestTable,
  type TargetsByClass,
  wasTurnedAway,
} from '../metrics/index.ts';

/** Counts of requests; `attained`, `missed` and `rejected` come to `injected`. */
export interface Attained {
  readonly injected: number;
  /** Completed, and held every target of its class. */
  readonly attained: number;
  /** Came to an instance, or was on its way there at the end, and did not hold them. */
  readonly missed: number;
  /** Turned away before it came to an instance: by admission, the gateway's queue or routing. */
  readonly rejected: number;
}

/** Over all classes with targets, and by class; requests of other classes are in `withoutTargets`. */
export function attainedOf(
  table: RequestTable,
  targets: TargetsByClass,
): Attained & { readonly withoutTargets: number; readonly byClass: Readonly<Record<string, Attained>> } {
  const none = { injected: 0, attained: 0, missed: 0, rejected: 0 };
  const byClass = new Map(
    Object.keys(targets)
      .sort()
      .map((name) => [name, { ...none }]),
  );
  const all = { ...none };
  for (let row = 0; row < table.size; row++) {
    const ofClass = byClass.get(classOf(table, row));
    if (ofClass === undefined) continue;
    for (const counts of [all, ofClass]) {
      counts.injected++;
      if (wasTurnedAway(table, row)) counts.rejected++;
      else if (meetsTargets(table, row, targets)) counts.attained++;
      else counts.missed++;
    }
  }
  return { ...all, withoutTargets: table.size - all.injected, byClass: Object.fromEntries(byClass) };
}
