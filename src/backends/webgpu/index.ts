/**
 * GPU memory through WebGPU: choose an adapter with `openDevice`, put a pool on it with `HbmStore.open`.
 * Kernels of your own over the pool's slots are made with `SlabKernel`.
 */

export { adoptDevice, openDevice } from './adapter/adapterChoice.ts';
export { type AdapterInfo, isSoftwareAdapter } from './adapter/adapterInfo.ts';
export { type BoxPlan, boxPlan } from './boxes/boxPlan.ts';
export { BufferUsage, MapMode, ShaderStage } from './device/gpuConstants.ts';
export { type DeviceErrors, LiveDevice } from './device/liveDevice.ts';
export { HbmStore } from './hbmStore.ts';
export type { BufferAccess, KernelSpec } from './kernels/kernelSpec.ts';
export type { EncodeOptions, KernelTable } from './kernels/kernelTable.ts';
export { shaderSource } from './kernels/shaders.ts';
export { SlabKernel } from './kernels/slabKernel.ts';
export type {
  AdapterReport,
  AdapterSource,
  BoxItem,
  BoxPath,
  DeviceOptions,
  DevicePool,
  HbmStoreOptions,
  MismatchResult,
  PatternItem,
  SlotBuffer,
  SlotLocation,
  Verification,
} from './types.ts';
