/// <reference types="@webgpu/types" preserve="true" />

/**
 * Which attention kernel a device gets. Both keep the promises of docs/compute.md, and differ in their last
 * bits. So the choice depends on the device alone, never on a step.
 *
 *     lanes        an invocation for each split and each few query heads of a KV head. No barrier and no
 *                  workgroup memory: software devices pay dearly for both
 *     workgroups   a workgroup of 128 for each split and the query heads of a KV head, with 7.5 KiB of
 *                  workgroup memory: for hardware, on which an invocation has few registers
 */

import { isSoftwareAdapter } from '../backends/webgpu/index.ts';
import { configError } from '../runtime/errors.ts';

export type AttentionKernel = 'lanes' | 'workgroups';

/** What is read of a device. */
export interface KernelDevice {
  /** Missing in old browsers. */
  readonly adapterInfo?: GPUAdapterInfo;
  readonly limits: Pick<
    GPUSupportedLimits,
    'maxComputeInvocationsPerWorkgroup' | 'maxComputeWorkgroupSizeX' | 'maxComputeWorkgroupStorageSize'
  >;
}

/** Of shaders/attendShared.wgsl. */
const WORKGROUP = { lanes: 128, bytes: 7680, headDimMax: 512 };

/**
 * `wished`, or by the adapter: `workgroups` on hardware that can run it, else `lanes`.
 * @throws TKV_CONFIG when what is wished for is no kernel, or cannot run here
 */
export function attentionKernel(
  wished: AttentionKernel | undefined,
  device: KernelDevice,
  headDim: number,
): AttentionKernel {
  const obstacle = obstacleToWorkgroups(device, headDim);
  if (wished === undefined) {
    const isHardware = device.adapterInfo !== undefined && !isSoftwareAdapter(device.adapterInfo);
    return isHardware && obstacle === '' ? 'workgroups' : 'lanes';
  }
  if (wished !== 'lanes' && wished !== 'workgroups') {
    throw configError(
      'kernel',
      `is ${String(wished)}`,
      'Use lanes or workgroups, or leave it to the device.',
    );
  }
  if (wished === 'workgroups' && obstacle !== '') {
    throw configError('kernel', `is workgroups, but ${obstacle}`, 'Use lanes.');
  }
  return wished;
}

/** Empty where there is none. */
function obstacleToWorkgroups({ limits }: KernelDevice, headDim: number): string {
  const { lanes, bytes, headDimMax } = WORKGROUP;
  if (headDim > headDimMax) return `heads have ${headDim} elements, more than ${headDimMax}`;
  const size = Math.min(limits.maxComputeInvocationsPerWorkgroup, limits.maxComputeWorkgroupSizeX);
  if (size < lanes) return `the device has workgroups of ${size}, not of ${lanes}`;
  const room = limits.maxComputeWorkgroupStorageSize;
  if (room < bytes) return `a workgroup of the device has ${room} bytes, not ${bytes}`;
  return '';
}
