/// <reference types="@webgpu/types" preserve="true" />

/** What an adapter says of itself, in tierkv's words. */

import type { AdapterReport, AdapterSource } from '../types.ts';

/** What is read of a `GPUAdapterInfo`. */
export type AdapterInfo = Pick<GPUAdapterInfo, 'vendor' | 'device' | 'description' | 'isFallbackAdapter'>;

export function reportOf(info: AdapterInfo, source: AdapterSource): AdapterReport {
  const name = nameOf(info) || 'unnamed adapter';
  return { name, vendor: info.vendor || 'unknown', software: isSoftwareAdapter(info), source };
}

/** Whether the adapter computes on the host's own cores. */
export function isSoftwareAdapter(info: AdapterInfo): boolean {
  return info.isFallbackAdapter || /swiftshader|llvmpipe|lavapipe|warp/i.test(nameOf(info));
}

function nameOf({ device, description }: AdapterInfo): string {
  const model = device.replace(/-+$/, '');
  return model === '' || description === '' ? model || description : `${model} (${description})`;
}
