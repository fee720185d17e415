/** Tells the links which loads are under way on them, from the issue of a job to its end or its deadline. */

import type { LinkPace } from '../../planning/linkPace.ts';
import { JobKind } from '../../transfer/jobTable.ts';
import { type Core, HBM } from '../core.ts';

export function loadBegan(core: Core, row: number): void {
  linkOf(core, row)?.began(core.unitBytes(core.jobs.sizeClass[row]), core.nowUs, core.computedUs());
}

/** Call it before the job's source is let go. @param arrived whether it brought its bytes */
export function loadEnded(core: Core, row: number, arrived: boolean): void {
  if (core.jobs.overdue[row] === 1) return; // its deadline was its end
  const bytes = core.unitBytes(core.jobs.sizeClass[row]);
  linkOf(core, row)?.ended(bytes, core.nowUs, core.computedUs(), arrived);
}

function linkOf({ jobs, replicas, links }: Core, row: number): LinkPace | undefined {
  const isLoad = jobs.kind[row] === JobKind.MOVE && jobs.targetTier[row] === HBM;
  return isLoad ? links[replicas.tierOf(jobs.source[row])] : undefined;
}
