/**
 * Whether boxes go through the kernels or by copies, one for each of their runs. A copy command costs the
 * same however short it is; a kernel pass costs once a batch, and then by the byte. So copies win where runs
 * are long, and where there are few of them in all. A box of one run is copied: its block has no other run
 * that could share the work.
 *
 * `bench/kv/boxes.ts` compares the two. On the software device they are even between runs of 1 and of 2 KiB,
 * and at some twenty runs a call. The rule for GPUs is a guess from the price of a command and the speed of a
 * link, not measured yet.
 */

import type { BoxPath } from '../types.ts';
import type { BoxPlan } from './boxPlan.ts';

export interface BoxPathRule {
  /** Runs of so many bytes and more are copied. */
  readonly copiedRunBytes: number;
  /** A call of so many runs and fewer is copied. */
  readonly copiedRuns: number;
}

export const softwareRule: BoxPathRule = { copiedRunBytes: 2048, copiedRuns: 16 };
export const hardwareRule: BoxPathRule = { copiedRunBytes: 65536, copiedRuns: 16 };

/** @param items how many the call has; they are taken to be alike */
export function choosePath(rule: BoxPathRule, plan: BoxPlan, items: number): BoxPath {
  if (plan.runs === 1) return 'copies';
  const long = plan.runBytes >= rule.copiedRunBytes;
  const few = plan.runs * items <= rule.copiedRuns;
  return long || few ? 'copies' : 'kernel';
}
