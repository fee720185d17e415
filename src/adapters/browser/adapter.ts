/**
 * `src/backends/webgpu/adapter.ts` in a page or a worker: the browser chooses the adapter. The device is tested as any
 * other, since a cache on one that moves nothing would serve zeros.
 */

import { LiveDevice } from '../../backends/webgpu/device.ts';
import { deviceFault, deviceWish, reportOf } from '../../backends/webgpu/selfTest.ts';
import type { DeviceOptions } from '../../backends/webgpu/types.ts';
import { TierKVError } from '../../runtime/errors.ts';

function failure(problem: string): TierKVError {
  return new TierKVError(
    'TKV_DEVICE',
    `${problem}. Use a browser with WebGPU, over https or from localhost, or leave hbmBytes out: host memory is the top tier then.`,
    { field: 'hbmBytes' },
  );
}

/** @throws TKV_DEVICE where the browser gives no device, or one that does not work */
export async function openDevice({ notice = () => {} }: DeviceOptions = {}): Promise<LiveDevice> {
  const { gpu } = navigator as Navigator & { readonly gpu?: GPU };
  const adapter = await gpu?.requestAdapter({ powerPreference: 'high-performance' });
  if (adapter === undefined || adapter === null) throw failure('The browser has no WebGPU adapter');
  const device = await adapter.requestDevice(deviceWish(adapter)).catch((error: Error) => {
    throw failure(`The browser gives no device (${error.message})`);
  });
  const live = new LiveDevice(device, reportOf(adapter.info, 'platform'), undefined, notice);
  const fault = await deviceFault(live);
  if (fault === '') return live;
  await live[Symbol.asyncDispose]();
  throw failure(`The device ${live.adapter.name} does not work: ${fault}`);
}
