/**
 * The door `tierkv/browser`: the same `KVRuntime` in a page or a worker, over the device that an engine has there, host memory
 * in ArrayBuffers, and files in the origin's private file system. Options that need Node are refused: `remote`, `log`,
 * `adapter`, `wait`. docs/guide/browser.md has all.
 *
 *     const kv = await openInBrowser({ layout, model, secretKey, device, hbmBytes, ddrBytes, nvme: { dir: 'kv', bytes } });
 */

import { guarded } from '../../backends/guarded.ts';
import type { KVRuntimeConfig } from '../../embed/config.ts';
import { KVRuntime } from '../../embed/kvRuntime.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';

export { BufferUsage, MapMode, ShaderStage } from '../../backends/webgpu/device.ts';
export type { BeginOptions, RetentionHint } from '../../embed/begin.ts';
export type { DeviceBlockTable, StepEnd } from '../../embed/context.ts';
export type { EntryEnd, StepEntry } from '../../embed/grow.ts';
export { KVRuntime } from '../../embed/kvRuntime.ts';
export type { RuntimeMetrics } from '../../embed/metrics.ts';
export type { BlockUseEvent, CacheEvent } from '../../embed/observability.ts';
export type { KVSequence, PrefillPart } from '../../embed/sequenceState.ts';
export { type ErrorCode, TierKVError } from '../../runtime/errors.ts';
export { type KVLayout, kvLayout } from '../../runtime/geometry/layout.ts';
export type { KeyElements, RequestExtra, RequestExtras } from '../../runtime/keys/keyChain.ts';

/** Options of `openInBrowser`: the ones of `KVRuntime.open` that a page can have. */
export interface BrowserRuntimeConfig extends Omit<KVRuntimeConfig, 'adapter' | 'wait' | 'remote' | 'log'> {
  /**
   * Behaviour where the files cannot be had: another tab has them, the window is private, storage is full. `fail`: the
   * error. `without`: the runtime opens without files, and `notice` gets a line that says why. Default `fail`.
   */
  readonly filesElse?: 'fail' | 'without';
}

/** Options of `KVRuntime.open` that mean something in Node alone, with the reason. */
const ofNode: Readonly<Record<string, string>> = {
  remote: 'needs sockets, which a browser does not have',
  log: 'is a file, and a browser has no disk',
  adapter: 'is chosen by the browser',
  wait: 'is for programs that wait for a device by themselves, which a browser does',
};

/** Whether the error says that files cannot be had, and not that an option is wrong. */
function isOfFiles(error: unknown): boolean {
  if (!(error instanceof TierKVError)) return false;
  const { code, field = '' } = error;
  if (code === 'TKV_CONFIG') return field === 'nvme.bytes'; // more than the quota
  return (code === 'TKV_LOCKED' || code === 'TKV_IO') && /^(nvme|dir)/.test(field);
}

/**
 * Opens a runtime in a page or a worker.
 * @throws {TierKVError} as `KVRuntime.open`; TKV_LOCKED where another tab has the files, TKV_CONFIG for options of Node
 */
export async function openInBrowser(config: BrowserRuntimeConfig): Promise<KVRuntime> {
  checkInputs({ config }, { config: is.object() });
  for (const [name, why] of Object.entries(ofNode)) {
    if (Reflect.get(config, name) !== undefined) throw configError(name, why, 'Leave it out.');
  }
  const { filesElse = 'fail', ...rest } = config;
  is.oneOf(['fail', 'without']).read(filesElse, 'filesElse');
  const { nvme, ...withoutFiles } = rest;
  try {
    return await KVRuntime.open(rest);
  } catch (error) {
    if (nvme === undefined || filesElse === 'fail' || !isOfFiles(error)) throw error;
    guarded(config.notice)(`tierkv: goes on without files. ${(error as TierKVError).message}`);
    return await KVRuntime.open(withoutFiles);
  }
}
