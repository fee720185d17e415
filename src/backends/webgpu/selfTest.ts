/// <reference types="@webgpu/types" preserve="true" />

/**
 * Requirements and test of any device, wherever it comes from: its features and limits, its name, and a test that it
 * moves bytes and computes. Nothing here needs Node.
 */

import { digestWords } from '../../runtime/digest.ts';
import { TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { fillPattern } from '../../runtime/pattern.ts';
import { poolShape } from '../../runtime/tables/slotPool.ts';
import { Outcome } from '../../runtime/tier/tier.ts';
import { LiveDevice } from './device.ts';
import { HbmStore } from './hbmStore.ts';
import type { AdapterReport, AdapterSource } from './types.ts';

/** Features that kernels use where a device has them. */
const WANTED_FEATURES: readonly GPUFeatureName[] = ['timestamp-query', 'shader-f16', 'subgroups'];
const WANTED_LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupSizeY',
  'maxComputeWorkgroupStorageSize',
  'maxComputeWorkgroupsPerDimension',
] as const;

/** The descriptor of a device: everything that kernels use, and the adapter's own maximum of some limits. */
export function deviceWish(adapter: GPUAdapter): GPUDeviceDescriptor {
  return {
    label: 'tierkv',
    requiredLimits: Object.fromEntries(WANTED_LIMITS.map((name) => [name, adapter.limits[name]])),
    requiredFeatures: WANTED_FEATURES.filter((name) => adapter.features.has(name)),
  };
}

/** Devices of embedders that have passed the test: it is made once, however many runtimes share a device. */
const passed = new WeakSet<GPUDevice>();

/** Takes a device of the embedder, who keeps the device and the object that `create` returned alive. */
export async function adoptDevice(
  device: GPUDevice,
  adapter: Omit<AdapterReport, 'source'>,
): Promise<LiveDevice> {
  checkInputs(
    { device, adapter },
    {
      device: is.fields({ addEventListener: is.func() }),
      adapter: is.fields({ name: is.text(), vendor: is.text() }),
    },
  );
  const live = new LiveDevice(device, { ...adapter, source: 'embedder' }, undefined);
  const fault = passed.has(device) ? '' : await deviceFault(live);
  if (fault === '') {
    passed.add(device);
    return live;
  }
  live.release();
  throw new TierKVError(
    'TKV_DEVICE',
    `The device given does not work: ${fault}. Give one that copies and computes.`,
  );
}

// ---- adapters

/** The fields of a `GPUAdapterInfo` that are read. */
type AdapterInfo = Pick<GPUAdapterInfo, 'vendor' | 'device' | 'description' | 'isFallbackAdapter'> &
  Partial<Pick<GPUAdapterInfo, 'architecture'>>;

export function reportOf(info: AdapterInfo, source: AdapterSource): AdapterReport {
  const name = nameOf(info) || 'unnamed adapter';
  return { name, vendor: info.vendor || 'unknown', software: isSoftwareAdapter(info), source };
}

/** Whether the adapter computes on the host's own cores. */
export function isSoftwareAdapter(info: AdapterInfo): boolean {
  checkInputs({ info }, { info: is.fields({ vendor: is.text(), device: is.text() }) });
  return info.isFallbackAdapter || /swiftshader|llvmpipe|lavapipe|warp/i.test(nameOf(info));
}

/** Browsers say vendor and architecture alone. */
function nameOf({ vendor, architecture = '', device, description }: AdapterInfo): string {
  const model = device.replace(/-+$/, '');
  if (model === '' && description === '')
    return `${architecture === '' ? '' : vendor} ${architecture}`.trim();
  return model === '' || description === '' ? model || description : `${model} (${description})`;
}

// ---- self-test: a device must copy, compute and return bytes that are not zero
//
// Some devices accept every call and move nothing (Dawn's null backend, broken drivers); a cache on them
// would serve zeros. The test runs a real pool of a few slots, so it tests the code that runs later.

const SLOT_BYTES = 4100;
const SLOTS = 3;
const SEED = 0x7e57;

/** The fault of the device; empty if it works. */
export async function deviceFault(live: LiveDevice): Promise<string> {
  const shape = poolShape(1, SLOTS * SLOT_BYTES, [SLOT_BYTES]);
  const store = await HbmStore.open(live, shape, {
    label: 'tierkv.selfTest',
    stagingBytes: 8192,
    stagingBuffers: 2,
    verifyWrites: 'kernel',
  }).catch((error: Error) => error);
  if (store instanceof Error) return store.message;
  try {
    return await poolFault(store);
  } finally {
    await store[Symbol.asyncDispose]();
  }
}

async function poolFault(store: HbmStore): Promise<string> {
  const words = new Uint32Array(SLOT_BYTES / 4);
  fillPattern(words, SEED, 0);
  const digest = digestWords(words);
  const uploaded = { slot: 0, sizeClass: 0, generation: 1, seedLo: SEED, seedHi: 0 };
  const generated = { ...uploaded, slot: 2 };

  const item = { ...uploaded, key: new Uint32Array(4), digest, bytes: new Uint8Array(words.buffer) };
  const [write] = await store.write([item]);
  if (write.outcome !== Outcome.LOADED) return `its uploads do not arrive (${write.reason})`;

  const [fill] = await store.fillPattern([generated]);
  const [check] = await store.countMismatches([generated]);
  const [seal] = await store.seal([generated]);
  if (fill.outcome !== Outcome.LOADED || check.mismatchedWords !== 0) return 'its kernels do not compute';
  if (seal.digest.lo !== digest.lo || seal.digest.hi !== digest.hi) return 'its kernels compute wrong sums';

  const landed = new Uint32Array(words.length);
  const [read] = await store.read([{ ...item, ...generated, bytes: new Uint8Array(landed.buffer) }]);
  if (read.outcome !== Outcome.LOADED) return `its readbacks do not arrive (${read.reason})`;
  if (landed.some((word, index) => word !== words[index])) return 'its readbacks bring wrong bytes';
  return '';
}
