/** A slice of the wrong kernels, each of which is caught. All of them: `npm run campaign -- kernels --mutations`. */

import { describe, expect, it } from 'vitest';
import { testDevice } from '../../backends/webgpu/testDevice.ts';
import { mutationsOfCi as mutations } from './mutations.ts';
import { wrongUnchanged, wrongValues } from './wrongValues.ts';

const device = testDevice();
const kernels = [...new Set(mutations.map(({ kernel }) => kernel))];

describe.each(kernels)('%s', (kernel) => {
  it('the unchanged kernel passes', async () => {
    expect(await wrongUnchanged(device.live.device, kernel)).toBe(0);
  });

  const ofKernel = mutations.filter((mutation) => mutation.kernel === kernel);
  it.each(ofKernel.map((mutation) => [mutation.fault, mutation] as const))('%s', async (_, mutation) => {
    const { wrong, replaced } = await wrongValues(device.live.device, mutation);
    expect(replaced, 'the mutation changes a kernel').toBeGreaterThan(0);
    expect(wrong).toBeGreaterThan(0);
  });
});
