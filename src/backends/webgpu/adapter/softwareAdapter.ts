/**
 * The software Vulkan device: where to find one, and how to make Dawn load it without root, a system library
 * or another package. The driver is SwiftShader, from a system Chromium or from the npm package
 * `@sparticuz/chromium`, whose small archive holds the driver, its manifest and the Vulkan loader. It is
 * unpacked once into a cache folder of the user's.
 *
 * Unpacking is safe between processes: each fills a folder of its own and renames it to the final name, and a
 * rename that fails because the name is taken means that another process was first with the same files.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import { TierKVError } from '../../../runtime/errors.ts';

export const SOFTWARE_PACKAGE = '@sparticuz/chromium';
export const INSTALL_REMEDY: string = `npm install --save-dev ${SOFTWARE_PACKAGE}`;

export interface SoftwareDriver {
  /** The manifest that VK_ICD_FILENAMES names. */
  readonly icdPath: string;
  readonly loaderPath: string;
}

const SYSTEM_ICDS = [
  '/usr/lib/chromium/vk_swiftshader_icd.json',
  '/usr/lib64/chromium-browser/vk_swiftshader_icd.json',
  '/usr/lib/chromium-browser/vk_swiftshader_icd.json',
  '/opt/google/chrome/vk_swiftshader_icd.json',
];
const DRIVER_FILES = ['libvk_swiftshader.so', 'libvulkan.so.1', 'vk_swiftshader_icd.json'];
/** Keeps the library mapped after Node closes the handle; Node has no name for it. */
const RTLD_NODELETE = 0x1000;

/** The manifest of a system Chromium's software driver, if there is one. */
export function systemSoftwareIcd(): string | undefined {
  return SYSTEM_ICDS.find((icd) => fs.existsSync(icd));
}

/**
 * The archive in the npm package, as seen from tierkv or from the program's folder; undefined where it is
 * missing.
 */
export function softwareArchive(): string | undefined {
  for (const from of [import.meta.url, path.join(process.cwd(), 'resolve.js')]) {
    try {
      const entry = createRequire(from).resolve(SOFTWARE_PACKAGE);
      const root = entry.slice(
        0,
        entry.lastIndexOf(path.normalize(SOFTWARE_PACKAGE)) + SOFTWARE_PACKAGE.length,
      );
      const archive = path.join(root, 'bin', 'swiftshader.tar.br');
      if (fs.existsSync(archive)) return archive;
    } catch {
      // Not installed as seen from there.
    }
  }
  return undefined;
}

/** @throws TKV_DEVICE when the archive cannot be unpacked anywhere, or has no driver in it */
export function unpackSoftwareDriver(archive: string, cacheDir: string = defaultCacheDir()): SoftwareDriver {
  if (process.arch !== 'x64') {
    throw softwareError(`${SOFTWARE_PACKAGE} has a software device for x64, not for ${process.arch}`);
  }
  const packed = fs.readFileSync(archive);
  const name = `swiftshader-${createHash('sha256').update(packed).digest('hex').slice(0, 16)}`;
  const folder = path.join(cacheDir, name);
  try {
    if (!isOwnDriver(folder)) {
      fs.mkdirSync(cacheDir, { recursive: true, mode: 0o700 });
      const scratch = fs.mkdtempSync(path.join(cacheDir, `${name}.unpacking-`));
      try {
        unpack(brotliDecompressSync(packed), scratch);
        discardDamaged(folder);
        fs.renameSync(scratch, folder);
      } catch (error) {
        fs.rmSync(scratch, { recursive: true, force: true });
        if (!isOwnDriver(folder)) throw error;
      }
    }
  } catch (cause) {
    throw softwareError(
      `the software device cannot be unpacked into ${cacheDir} (${(cause as Error).message})`,
      'Set XDG_CACHE_HOME to a folder that you may write to.',
    );
  }
  return {
    icdPath: path.join(folder, 'vk_swiftshader_icd.json'),
    loaderPath: path.join(folder, 'libvulkan.so.1'),
  };
}

/** Whether the dynamic linker finds a Vulkan loader by itself. */
export function hasSystemLoader(): boolean {
  return tryLoad('libvulkan.so.1');
}

/**
 * Maps the Vulkan loader at `loaderPath`, so that Dawn's own dlopen of `libvulkan.so.1` finds it by its
 * soname. Node says "did not self-register" and closes the handle, since it is no addon; the library stays.
 */
export function preloadVulkanLoader(loaderPath: string): void {
  if (!tryLoad(loaderPath)) throw softwareError(`the Vulkan loader ${loaderPath} cannot be loaded`);
}

function tryLoad(library: string): boolean {
  try {
    process.dlopen({ exports: {} }, library, os.constants.dlopen.RTLD_NOW | RTLD_NODELETE);
    return true;
  } catch (error) {
    return error instanceof Error && error.message.startsWith('Module did not self-register');
  }
}

function defaultCacheDir(): string {
  const base = process.env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache');
  const own = path.join(base, 'tierkv');
  try {
    fs.mkdirSync(own, { recursive: true, mode: 0o700 });
    fs.accessSync(own, fs.constants.W_OK);
    return own;
  } catch {
    return path.join(os.tmpdir(), `tierkv-${process.getuid?.() ?? 'user'}`);
  }
}

/** Code is loaded from there, so files that another user could have put there do not count. */
function isOwnDriver(folder: string): boolean {
  const uid = process.getuid?.();
  return [folder, ...DRIVER_FILES.map((name) => path.join(folder, name))].every((file) => {
    const stat = fs.lstatSync(file, { throwIfNoEntry: false });
    return stat !== undefined && stat.size > 0 && (stat.isFile() || file === folder) && isOwn(stat, uid);
  });
}

function isOwn(stat: fs.Stats, uid: number | undefined): boolean {
  return !stat.isSymbolicLink() && (uid === undefined || stat.uid === uid);
}

/** A copy of our own with files missing or empty, as a cleaner or a power cut leaves it. */
function discardDamaged(folder: string): void {
  const stat = fs.lstatSync(folder, { throwIfNoEntry: false });
  if (stat === undefined || !isOwn(stat, process.getuid?.()) || isOwnDriver(folder)) return;
  fs.rmSync(folder, { recursive: true, force: true });
}

/** The driver's files out of a ustar archive: blocks of 512 bytes, a header before each file. */
function unpack(tar: Buffer, into: string): void {
  const found = new Set<string>();
  for (let at = 0; at + 512 <= tar.length && tar[at] !== 0; ) {
    const field = (from: number, length: number): string =>
      tar.toString('latin1', at + from, at + from + length).split('\0')[0];
    const size = Number.parseInt(field(124, 12), 8);
    if (!(size >= 0)) throw new Error('the archive is damaged');
    const name = path.basename(field(0, 100));
    if (DRIVER_FILES.includes(name)) {
      fs.writeFileSync(path.join(into, name), tar.subarray(at + 512, at + 512 + size), { mode: 0o600 });
      found.add(name);
    }
    at += 512 * (1 + Math.ceil(size / 512));
  }
  const missing = DRIVER_FILES.filter((name) => !found.has(name));
  if (missing.length > 0) throw new Error(`the archive holds no ${missing.join(', ')}`);
}

function softwareError(problem: string, remedy = 'Set VK_ICD_FILENAMES to a Vulkan driver.'): TierKVError {
  return new TierKVError('TKV_DEVICE', `No software device: ${problem}. ${remedy}`, {
    field: 'TIERKV_ADAPTER',
  });
}
