/// <reference types="@webgpu/types" preserve="true" />

/**
 * Chooses the adapter, opens a device on it, and tests that the device works. If the user does not force one,
 * it is the first of these that passes the self-test:
 *
 *     1  what the platform offers: hardware; or the user's own driver where VK_DRIVER_FILES or
 *        VK_ICD_FILENAMES is set
 *     2  the software driver of a system Chromium
 *     3  the software driver from npm
 *
 * A driver that the user named is never replaced by another: if it does not work that is an error. The same
 * holds for an adapter forced by TIERKV_ADAPTER. A device that does not move bytes is never accepted. The
 * choice of a software device is announced.
 */

import fs from 'node:fs';
import path from 'node:path';
import { TierKVError } from '../../runtime/errors.ts';
import { guarded } from '../guarded.ts';
import { LiveDevice } from './device.ts';
import { deviceFault, deviceWish, reportOf } from './selfTest.ts';
import {
  anyManifest,
  hasSystemLoader,
  INSTALL_REMEDY,
  preloadVulkanLoader,
  SOFTWARE_PACKAGE,
  softwareArchive,
  systemSoftwareIcd,
  unpackSoftwareDriver,
} from './softwareAdapter.ts';
import { type AdapterSource, type DeviceOptions, deviceOptionsTable } from './types.ts';

/** The last choice: choices change the environment for a moment, so they run one after the other. */
let previousChoice: Promise<unknown> = Promise.resolve();

/** @throws TKV_DEVICE, with what was tried and a remedy, if no adapter works or the forced one does not */
export async function openDevice(options: DeviceOptions = {}): Promise<LiveDevice> {
  deviceOptionsTable.read(options);
  const choice = previousChoice.then(() => new AdapterChoice(options).choose());
  previousChoice = choice.then(
    () => {},
    () => {},
  );
  return choice;
}

class AdapterChoice {
  readonly #forced: string;
  /** The setting that forces an adapter; `#wish` is setting and value, for errors. */
  readonly #setting: 'adapter' | 'TIERKV_ADAPTER';
  readonly #wish: string;
  readonly #notice: (line: string) => void;
  readonly #sleeps: boolean;
  readonly #cacheDir: string | undefined;
  readonly #userDriver: 'VK_DRIVER_FILES' | 'VK_ICD_FILENAMES' | undefined;
  readonly #tried: string[] = [];

  constructor(options: DeviceOptions) {
    this.#forced = (options.adapter ?? process.env.TIERKV_ADAPTER ?? '').trim();
    this.#setting = options.adapter === undefined ? 'TIERKV_ADAPTER' : 'adapter';
    this.#wish = `${this.#setting}${options.adapter === undefined ? '=' : ' '}${this.#forced}`;
    this.#notice = guarded(options.notice);
    this.#sleeps = options.wait !== 'spin';
    this.#cacheDir = options.cacheDir;
    this.#userDriver = (['VK_DRIVER_FILES', 'VK_ICD_FILENAMES'] as const).find(
      (name) => (process.env[name] ?? '') !== '',
    );
  }

  async choose(): Promise<LiveDevice> {
    await loadDawn(); // where it is missing, no adapter can be the cause
    const live = await this.#byWish();
    if (this.#sleeps) live.sleepWhileWaiting();
    const { name, software, source } = live.adapter;
    if (software) {
      this.#notice(
        `tierkv: running on the SOFTWARE device ${name} (${source}). Its speed says nothing about a GPU's.`,
      );
    }
    return live;
  }

  #byWish(): Promise<LiveDevice> {
    const forced = this.#forced;
    if (forced === '') return this.#automatic();
    if (forced === 'hardware') return this.#hardware();
    if (forced === 'software') return this.#software();
    if (forced.endsWith('.json') || forced.includes(path.sep)) return this.#manifest(forced);
    return this.#named(forced);
  }

  async #automatic(): Promise<LiveDevice> {
    const named = this.#userDriver;
    const live = (await this.#platform()) ?? (named === undefined ? await this.#anySoftware() : undefined);
    if (live !== undefined) return live;
    const correction = `Correct ${named}, or unset it to let tierkv choose.`;
    throw this.#failure('No usable GPU adapter', named === undefined ? this.#softwareRemedy() : correction);
  }

  async #hardware(): Promise<LiveDevice> {
    const live = await this.#platform();
    if (live !== undefined && !live.adapter.software) return live;
    if (live !== undefined) await this.#reject(live, 'is a software device');
    throw this.#failure(
      `${this.#wish} finds no hardware GPU`,
      `Install its Vulkan driver, or unset ${this.#setting} to run on the software device.`,
    );
  }

  async #software(): Promise<LiveDevice> {
    if (this.#userDriver !== undefined) {
      const live = await this.#platform();
      if (live?.adapter.software) return live;
      if (live !== undefined) await this.#reject(live, 'is not a software device');
    }
    const live = (await this.#anySoftware()) ?? (await this.#platform({ forceFallback: true }));
    if (live?.adapter.software) return live;
    if (live !== undefined) await this.#reject(live, 'is not a software device');
    throw this.#failure(`${this.#wish} finds no software device`, this.#softwareRemedy());
  }

  async #manifest(icdPath: string): Promise<LiveDevice> {
    if (!fs.existsSync(icdPath)) this.#tried.push(`${icdPath} does not exist`);
    else if (this.#ensureLoader()) {
      const live = await this.#accept({ source: 'TIERKV_ADAPTER', icdPath: path.resolve(icdPath) });
      if (live !== undefined) return live;
    }
    throw this.#failure(
      `${this.#wish} gives no usable adapter`,
      `Set ${this.#setting} to the path of a Vulkan ICD manifest (.json) whose driver works, or unset it.`,
    );
  }

  async #named(part: string): Promise<LiveDevice> {
    const matches = (live: LiveDevice | undefined): boolean =>
      live?.adapter.name.toLowerCase().includes(part.toLowerCase()) ?? false;
    const live = (await this.#platform({ nameContains: part })) ?? (await this.#platform());
    if (live !== undefined && matches(live)) return live;
    if (live !== undefined) await this.#reject(live, `has no "${part}" in its name`);
    const software = await this.#anySoftware();
    if (software !== undefined && matches(software)) return software;
    if (software !== undefined) await this.#reject(software, `has no "${part}" in its name`);
    throw this.#failure(
      `${this.#wish} matches no adapter`,
      'Set it to hardware, software, an ICD path or a part of the name of an adapter listed here.',
    );
  }

  /** A device of the platform, or of the driver that the user named in the environment. */
  async #platform(more: Partial<InstanceRequest> = {}): Promise<LiveDevice | undefined> {
    const source: AdapterSource = this.#userDriver ?? 'platform';
    if (process.platform === 'linux') {
      if (this.#userDriver === undefined && !anyManifest()) {
        this.#note(source, 'no Vulkan driver is installed');
        return undefined;
      }
      if (!this.#ensureLoader()) return undefined;
    }
    return this.#accept({ ...more, source });
  }

  async #anySoftware(): Promise<LiveDevice | undefined> {
    if (process.platform !== 'linux') return undefined;
    const system = systemSoftwareIcd();
    if (system !== undefined && this.#ensureLoader()) {
      const live = await this.#accept({ source: 'system-software', icdPath: system });
      if (live !== undefined) return live;
    }
    const archive = softwareArchive();
    if (archive === undefined) {
      this.#note('npm-software', `${SOFTWARE_PACKAGE} is not installed`);
      return undefined;
    }
    const driver = unpackSoftwareDriver(archive, this.#cacheDir);
    if (!hasSystemLoader()) preloadVulkanLoader(driver.loaderPath);
    return this.#accept({ source: 'npm-software', icdPath: driver.icdPath });
  }

  /** Makes sure of a Vulkan loader: the system's, else the one from npm. */
  #ensureLoader(): boolean {
    if (process.platform !== 'linux' || hasSystemLoader()) return true;
    const archive = softwareArchive();
    if (archive === undefined || process.arch !== 'x64') {
      const why = `neither the system nor ${SOFTWARE_PACKAGE} has a Vulkan loader (libvulkan.so.1)`;
      this.#note('platform', why);
      return false;
    }
    preloadVulkanLoader(unpackSoftwareDriver(archive, this.#cacheDir).loaderPath);
    return true;
  }

  async #accept(request: InstanceRequest): Promise<LiveDevice | undefined> {
    const live = await requestDevice(request, this.#notice);
    if (typeof live === 'string') {
      this.#note(request.source, live);
      return undefined;
    }
    const fault = await deviceFault(live);
    if (fault === '') return live;
    await this.#reject(live, `failed its self-test: ${fault}`);
    return undefined;
  }

  async #reject(live: LiveDevice, why: string): Promise<void> {
    this.#tried.push(`${live.adapter.source}: ${live.adapter.name} ${why}`);
    await live[Symbol.asyncDispose]();
  }

  #note(source: AdapterSource, why: string): void {
    const line = `${source}: ${why}`;
    if (!this.#tried.includes(line)) this.#tried.push(line);
  }

  #softwareRemedy(): string {
    if (process.platform !== 'linux') return 'Install a driver that WebGPU supports.';
    if (softwareArchive() === undefined) return `For a software device: ${INSTALL_REMEDY}`;
    return (
      'Set VK_ICD_FILENAMES to a Vulkan driver before the process starts ' +
      '(a worker thread passes its environment on only with env: SHARE_ENV).'
    );
  }

  #failure(problem: string, remedy: string): TierKVError {
    const tried = this.#tried.length === 0 ? '' : ` Tried: ${this.#tried.join('; ')}.`;
    return new TierKVError('TKV_DEVICE', `${problem}.${tried} ${remedy}`, { field: this.#setting });
  }
}

// ---- one Dawn instance, and one device from it, under a chosen Vulkan driver
//
// The Vulkan loader reads the environment when the adapter is requested. So the driver is named in the
// environment for that moment only, and child processes do not inherit it. Calls must not overlap.
//
// Hazard, quantized timestamps: by default Dawn rounds timestamps to 65,536 ns. The toggle below turns that
// off.

const DAWN = 'webgpu';
const TOGGLES = 'disable-dawn-features=timestamp_quantization';
interface InstanceRequest {
  readonly source: AdapterSource;
  /** The ICD manifest to use, in place of the environment's. */
  readonly icdPath?: string;
  /** Text that the adapter's name must contain. */
  readonly nameContains?: string;
  readonly forceFallback?: boolean;
  /** Name of Dawn's backend. */
  readonly backend?: string;
}

/**
 * The binding to Dawn, an optional peer of this package: programs without a device do without it.
 * @throws TKV_DEVICE with the command that installs it
 */
async function loadDawn(): Promise<typeof import('webgpu')> {
  try {
    return await import('webgpu');
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const isAbsent = code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND';
    const problem = isAbsent ? 'is not installed' : `does not load here (${firstLine(message)})`;
    throw new TierKVError(
      'TKV_DEVICE',
      `A device needs the package ${DAWN}, which ${problem}. Run: npm install ${DAWN}. ` +
        `On a machine without a GPU, also: ${INSTALL_REMEDY}`,
      { field: DAWN, cause },
    );
  }
}

/** The device, or why it cannot be opened. */
export async function requestDevice(
  request: InstanceRequest,
  notice: (line: string) => void,
): Promise<LiveDevice | string> {
  const { create } = await loadDawn();
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
    const device = await adapter.requestDevice(deviceWish(adapter));
    return new LiveDevice(device, reportOf(adapter.info, request.source), instance, notice);
  } catch (error) {
    return firstLine(error instanceof Error ? error.message : String(error));
  }
}

/** Runs `act` with VK_ICD_FILENAMES set, and VK_DRIVER_FILES removed, since it would take precedence. */
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
