import { expect, it } from 'vitest';
import { attentionKernel, type KernelDevice } from '../../src/compute/index.ts';
import { testDevice } from '../backends/webgpu/testDevice.ts';
import { openCase } from './cases/attentionRun.ts';
import { pagedCase } from './cases/pagedCase.ts';

const limits = {
  maxComputeInvocationsPerWorkgroup: 256,
  maxComputeWorkgroupSizeX: 256,
  maxComputeWorkgroupStorageSize: 16384,
};

function device(info: Partial<GPUAdapterInfo> | undefined, more: Partial<typeof limits> = {}): KernelDevice {
  const names = { vendor: '', architecture: '', device: '', description: '', isFallbackAdapter: false };
  const adapterInfo = info === undefined ? undefined : ({ ...names, ...info } as GPUAdapterInfo);
  return { limits: { ...limits, ...more }, ...(adapterInfo === undefined ? {} : { adapterInfo }) };
}

it.each([
  ['a discrete GPU', device({ vendor: 'nvidia', device: 'NVIDIA H100' }), 'workgroups'],
  ['hardware that hides its name', device({}), 'workgroups'],
  ['SwiftShader', device({ vendor: 'google', device: 'SwiftShader Device (Subzero)' }), 'lanes'],
  ['llvmpipe', device({ vendor: 'mesa', description: 'llvmpipe (LLVM 19.1, 256 bits)' }), 'lanes'],
  ['whatever calls itself a fallback', device({ isFallbackAdapter: true }), 'lanes'],
  ['a browser that tells nothing', device(undefined), 'lanes'],
  ['hardware with small workgroups', device({}, { maxComputeInvocationsPerWorkgroup: 64 }), 'lanes'],
  ['hardware with little memory', device({}, { maxComputeWorkgroupStorageSize: 4096 }), 'lanes'],
] as const)('%s', (_, of, kernel) => {
  expect(attentionKernel(undefined, of, 128)).toBe(kernel);
  expect(attentionKernel('lanes', of, 128)).toBe('lanes');
});

it('a kernel that is asked for is used, or refused by name', () => {
  const hardware = device({});
  const software = device({ isFallbackAdapter: true });
  expect(attentionKernel('workgroups', software, 128)).toBe('workgroups');
  expect(attentionKernel(undefined, hardware, 516)).toBe('lanes');
  const refused = expect.objectContaining({ code: 'TKV_CONFIG', field: 'kernel' });
  expect(() => attentionKernel('workgroups', hardware, 516)).toThrow(refused);
  const small = device({}, { maxComputeWorkgroupSizeX: 64 });
  expect(() => attentionKernel('workgroups', small, 64)).toThrow(refused);
  expect(() => attentionKernel('fast' as 'lanes', hardware, 64)).toThrow(refused);
});

const opened = testDevice();

it('a software device is recognized, and gets the lanes kernel', async () => {
  const gpu = opened.live.device;
  expect(gpu.adapterInfo).toBeDefined();
  const kernel = opened.live.adapter.software ? 'lanes' : 'workgroups';
  expect(attentionKernel(undefined, gpu, 64)).toBe(kernel);
  const one = pagedCase({ headDim: 8, kvHeads: 1, qHeads: 2, blockTokens: 4, lengths: [5] });
  const [byDevice, forced] = [await openCase(gpu, one), await openCase(gpu, one, { kernel })];
  expect(await byDevice.run()).toEqual(await forced.run());
  byDevice.destroy();
  forced.destroy();
});
