/** GPU memory through WebGPU: choose an adapter with `openDevice`, put a pool on it with `HbmStore.open`. */

export { adoptDevice, openDevice } from './adapter.ts';
export { type BoxPlan, boxPlan } from './boxes/index.ts';
export { HbmStore } from './hbmStore.ts';
export { LiveDevice } from './liveDevice.ts';
export type {
  AdapterReport,
  AdapterSource,
  BoxItem,
  CopyItem,
  DeviceOptions,
  DevicePool,
  HbmStoreOptions,
  MismatchResult,
  PatternItem,
  SlotBuffer,
} from './types.ts';
export { readUploadProfile, type UploadProfile } from './uploadProfile.ts';
