import { describe, expect, it } from 'vitest';
import { softwareDevice } from '../backends/webgpu/softwareDevice.ts';
import { firstWrong, shapesOfCi, shapesOfWorkgroups, title } from './shapeTable.ts';

const device = softwareDevice();

describe.each([
  ['lanes', shapesOfCi],
  ['workgroups', shapesOfWorkgroups],
] as const)('the kernel of %s', (kernel, shapes) => {
  it.each(shapes.map((shape) => [title(shape), shape] as const))('%s', async (_, shape) => {
    expect(await firstWrong(device.live.device, shape, kernel)).toBe('');
  });
});
