/**
 * What the link bench measures, and the limit of each. A link is a pipeline of three parts of the machine:
 * device, host and disk. They work at the same time on different blocks, so the slowest part sets the pace. A
 * part that does several things to a byte, or serves both ways at once, takes the sum of their times.
 *
 *     ddrToHbm, verified by readback    device: copy in, copy out     host: memcpy in, digest of staging
 *     nvmeToDdr, verified               disk: read                    host: digest
 */

import { linkName, Tier } from '../../../runtime/index.ts';

export interface Route {
  /** From which tier to which; two of them for half of the blocks each way at once. */
  readonly ways: readonly (readonly [Tier, Tier])[];
  /** Whether what arrives in HBM, or from a file in host memory, is compared with its digest. */
  readonly verified: boolean;
}

/**
 * `copy` is copyBufferToBuffer, `memcpy` goes to or from a mapped buffer; `in` is towards device memory.
 * `read` and `write` are direct file I/O at the places of the row's own blocks.
 */
export type Stage = HostStage | 'copy in' | 'copy out' | 'read' | 'write';
type HostStage = 'memcpy in' | 'memcpy out' | 'digest' | 'digest of staging';

const { HBM, DDR, NVME } = Tier;
const [hbmToDdr, ddrToHbm] = [[HBM, DDR] as const, [DDR, HBM] as const];
const [ddrToNvme, nvmeToDdr] = [[DDR, NVME] as const, [NVME, DDR] as const];
const [hbmToNvme, nvmeToHbm] = [[HBM, NVME] as const, [NVME, HBM] as const];

export const routes: readonly Route[] = [
  { ways: [hbmToDdr], verified: false },
  { ways: [ddrToHbm], verified: true },
  { ways: [ddrToHbm], verified: false },
  { ways: [hbmToDdr, ddrToHbm], verified: true },
  { ways: [ddrToNvme], verified: false },
  { ways: [nvmeToDdr], verified: true },
  { ways: [ddrToNvme, nvmeToDdr], verified: true },
  { ways: [hbmToNvme], verified: false },
  { ways: [nvmeToHbm], verified: true },
  { ways: [hbmToNvme, nvmeToHbm], verified: true },
];

/** `ddrToHbm`, or `hbmToDdr+ddrToHbm` for both ways at once. */
export function linkOf({ ways }: Route): string {
  return ways.map(([from, to]) => linkName(from, to)).join('+');
}

/**
 * What each part of the machine does, over all ways: device, host, disk.
 * @param readback whether arrivals in HBM are verified by a copy back and a digest on the host. Where a
 *   kernel verifies them the check is no stage: its time counts as tierkv's loss.
 */
export function stagesOf({ ways, verified }: Route, readback: boolean): readonly Stage[][] {
  const [device, host, disk]: Stage[][] = [[], [], []];
  for (const [from, to] of ways) {
    const comesBack = to === HBM && verified && readback;
    if (to === HBM) device.push('copy in');
    if (from === HBM || comesBack) device.push('copy out');
    if (from === HBM) host.push('memcpy out');
    if (to === HBM) host.push('memcpy in');
    if (comesBack) host.push('digest of staging');
    if (from === NVME && to === DDR && verified) host.push('digest');
    if (from === NVME) disk.push('read');
    if (to === NVME) disk.push('write');
  }
  return [device, host, disk];
}

/** The slowest part and all that it does. @param gbpsOf what a stage did alone */
export function limitOf(route: Route, readback: boolean, gbpsOf: (stage: Stage) => number): [number, string] {
  const limits = stagesOf(route, readback).map((stages): [number, string] => {
    const nsPerByte = stages.reduce((sum, stage) => sum + 1 / gbpsOf(stage), 0);
    // both ways: each byte passes the stages of one way only
    return [route.ways.length / nsPerByte, [...new Set(stages)].join(' + ')];
  });
  return limits.reduce((slowest, other) => (other[0] < slowest[0] ? other : slowest));
}
