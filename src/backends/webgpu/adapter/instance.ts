/**
 * One Dawn instance and one device from it, under a Vulkan driver of our choosing. The Vulkan loader reads
 * the environment when the adapter is requested, so a driver is named for exactly that long, and a child
 * process never inherits it. Callers must not overlap.
 *
 * Hazard, quantized timestamps: by default Dawn rounds timestamps to 65,536 ns. The toggle below gives real
 * ones.
 */

import { LiveDevice } from '../device/liveDevice.ts';
import type { AdapterSource } from '../types.ts';
import { reportOf } from './adapterInfo.ts';

const TOGGLES = 'disable-dawn-features=timestamp_quantization';
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

export interface InstanceRequest {
  readonly source: AdapterSource;
  /** The ICD manifest to use instead of what the environment says. */
  readonly icdPath?: string;
  /** Only an adapter with this in its name. */
  readonly nameContains?: string;
  readonly forceFallback?: boolean;
  /** Dawn's backend, by name. */
  readonly backend?: string;
}

/** The device, or why there is none. */
export async function requestDevice(
  request: InstanceRequest,
  notice: (line: string) => void,
): Promise<LiveDevice | string> {
  const { create } = await import('webgpu');
  const flags = [TOGGLES];
  if (request.nameContains !== undefined) flags.push(`adapter=${request.nameContains}`);
  if (request.backend !== undefined) flags.push(`backend=${request.backend}`);
  try {
    const instance = create(flags);
    const adapter = await withIcd(request.icdPath, () =>
      instance.requestAdapter({
        powerPreference: 'high-performance',
        forceFallbackAdapter: request.forceFallback ?? false,
      }),
    );
    if (adapter === null) return 'no adapter';
    const requiredLimits = Object.fromEntries(WANTED_LIMITS.map((name) => [name, adapter.limits[name]]));
    const requiredFeatures = WANTED_FEATURES.filter((name) => adapter.features.has(name));
    const device = await adapter.requestDevice({ label: 'tierkv', requiredLimits, requiredFeatures });
    return new LiveDevice(device, reportOf(adapter.info, request.source), instance, notice);
  } catch (error) {
    return firstLine(error instanceof Error ? error.message : String(error));
  }
}

/** The driver is named by VK_ICD_FILENAMES alone, which VK_DRIVER_FILES would outrank. */
async function withIcd<T>(icdPath: string | undefined, act: () => Promise<T>): Promise<T> {
  if (icdPath === undefined) return act();
  const saved = ['VK_ICD_FILENAMES', 'VK_DRIVER_FILES'].map((name) => [name, process.env[name]] as const);
  delete process.env.VK_DRIVER_FILES;
  process.env.VK_ICD_FILENAMES = icdPath;
  try {
    return await act();
  } finally {
    for (const [name, value] of saved) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
}

function firstLine(message: string): string {
  return message.split('\n')[0];
}
