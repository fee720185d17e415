/**
 * Finds a software Vulkan device, and makes Dawn load it without root or a system library. The driver is
 * SwiftShader, from a system Chromium or from the npm package `@sparticuz/chromium`, whose small archive
 * holds the driver, its manifest and the Vulkan loader. It is unpacked once into the user's cache folder.
 *
 * The unpacked files are code that this process runs. So only the user and root may be able to change the
 * files, their folder and every folder above it; any other place is refused. Several processes may unpack at
 * once: each fills a folder of its own and renames it into place. If the place is taken, another process was
 * first with the same files.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import { TierKVError } from '../../runtime/errors.ts';
import { makeDirectories } from '../host/posix.ts';

export const SOFTWARE_PACKAGE = '@sparticuz/chromium';
export const INSTALL_REMEDY: string = `npm install --save-dev ${SOFTWARE_PACKAGE}`;

interface SoftwareDriver {
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
/** Flag of dlopen(3) that keeps the library mapped after Node closes the handle. Node does not export it. */
const RTLD_NODELETE = 0x1000;

/** The manifest of a system Chromium's software driver, if one is installed. */
export function systemSoftwareIcd(): string | undefined {
  return SYSTEM_ICDS.find((icd) => fs.existsSync(icd));
}

/**
 * The archive in the npm package, resolved from tierkv or from the program's folder; undefined if it is
 * missing. A package that another user put into a folder above the program's counts as missing.
 */
export function softwareArchive(): string | undefined {
  for (const from of [import.meta.url, path.join(process.cwd(), 'resolve.js')]) {
    try {
      const entry = createRequire(from).resolve(SOFTWARE_PACKAGE);
      const end = entry.lastIndexOf(path.normalize(SOFTWARE_PACKAGE)) + SOFTWARE_PACKAGE.length;
      const archive = path.join(entry.slice(0, end), 'bin', 'swiftshader.tar.br');
      const stat = fs.statSync(archive, { throwIfNoEntry: false });
      if (stat !== undefined && isOwnedByUserOrRoot(stat)) return archive;
    } catch {
      // Not installed there.
    }
  }
  return undefined;
}

/**
 * @param cacheDir where to unpack. Default: `tierkv` in the user's cache folder, or a private temporary
 * folder if that one cannot be used
 * @throws TKV_DEVICE if the archive cannot be unpacked anywhere or holds no driver, or if other users can
 * write to every place for it
 */
export function unpackSoftwareDriver(archive: string, cacheDir?: string): SoftwareDriver {
  if (process.arch !== 'x64') {
    throw softwareError(`${SOFTWARE_PACKAGE} has a software device for x64, not for ${process.arch}`);
  }
  const packed = fs.readFileSync(archive);
  const name = `swiftshader-${createHash('sha256').update(packed).digest('hex').slice(0, 16)}`;
  const problems: string[] = [];
  for (const folder of cacheDir === undefined ? defaultCacheDirs() : [cacheDir]) {
    try {
      const place = unpackInto(folder, name, packed);
      return {
        icdPath: path.join(place, 'vk_swiftshader_icd.json'),
        loaderPath: path.join(place, 'libvulkan.so.1'),
      };
    } catch (cause) {
      problems.push(`${folder} (${(cause as Error).message})`);
    }
  }
  throw softwareError(
    `it cannot be unpacked into ${problems.join(' nor into ')}`,
    'Set XDG_CACHE_HOME to a folder that only you may write to.',
  );
}

/** The folder with the driver's files in `cacheDir`. Unpacks them if they are not there yet. */
function unpackInto(cacheDir: string, name: string, packed: Buffer): string {
  makeDirectories(cacheDir, 0o700);
  // Links are followed once, here, so that the files that are checked are the files that are loaded.
  const folder = fs.realpathSync(cacheDir);
  requireOwnPath(folder);
  const place = path.join(folder, name);
  if (isOwnDriver(place)) return place;
  const scratch = fs.mkdtempSync(path.join(folder, `${name}.unpacking-`));
  try {
    unpack(brotliDecompressSync(packed), scratch);
    discardDamaged(place);
    fs.renameSync(scratch, place);
  } catch (error) {
    fs.rmSync(scratch, { recursive: true, force: true });
    if (!isOwnDriver(place)) throw error;
  }
  return place;
}

/** Whether the dynamic linker finds a Vulkan loader by itself. */
export function hasSystemLoader(): boolean {
  return tryLoad('libvulkan.so.1');
}

/**
 * Maps the Vulkan loader at `loaderPath`, so that Dawn's own dlopen of `libvulkan.so.1` finds it by its
 * soname. Node reports "did not self-register" and closes the handle, since the library is not an addon; the
 * library stays.
 */
export function preloadVulkanLoader(loaderPath: string): void {
  if (!tryLoad(loaderPath)) throw softwareError(`the Vulkan loader ${loaderPath} cannot be loaded`);
}

/** Messages of Node, Bun and Deno for a library that they have loaded and that is not an addon. */
const notAnAddon =
  /^Module did not self-register|'napi_register_module_v1' not found|register Node-API module/;

function tryLoad(library: string): boolean {
  try {
    process.dlopen({ exports: {} }, library, os.constants.dlopen.RTLD_NOW | RTLD_NODELETE);
    return true;
  } catch (error) {
    return error instanceof Error && notAnAddon.test(error.message);
  }
}

function defaultCacheDirs(): string[] {
  const base = process.env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache');
  return [path.join(base, 'tierkv'), path.join(os.tmpdir(), `tierkv-${process.geteuid?.() ?? 'user'}`)];
}

const GROUP_OR_OTHERS_WRITE = 0o022;
const STICKY = 0o1000;

/** Always true on systems where files have no owner, such as Windows. */
function isOwnedByUserOrRoot({ uid }: fs.Stats): boolean {
  const user = process.geteuid?.();
  return user === undefined || uid === user || uid === 0;
}

/** Whether only this user and root can change the file or folder. */
function isOwn(stat: fs.Stats): boolean {
  const open = process.platform !== 'win32' && (stat.mode & GROUP_OR_OTHERS_WRITE) !== 0;
  return isOwnedByUserOrRoot(stat) && !open;
}

/**
 * Refuses a folder whose files another user could exchange. Every folder from the root down must belong to
 * this user or root, and other users must not be able to write to it. A folder with the sticky bit, such as
 * /tmp, may be open, since only owners can change its entries.
 * @param folder absolute, without links
 */
function requireOwnPath(folder: string): void {
  for (let at = folder; ; at = path.dirname(at)) {
    const stat = fs.lstatSync(at);
    if (!stat.isDirectory()) throw new Error(`${at} is not a folder`);
    const sticky = at !== folder && (stat.mode & STICKY) !== 0 && isOwnedByUserOrRoot(stat);
    if (!sticky && !isOwn(stat)) {
      const why = isOwnedByUserOrRoot(stat) ? 'is open to others' : `belongs to user ${stat.uid}`;
      throw new Error(`${at} ${why}, who could exchange the driver`);
    }
    if (path.dirname(at) === at) return;
  }
}

/** Whether `place` holds the complete driver, in files that only this user and root can change. */
function isOwnDriver(place: string): boolean {
  return [place, ...DRIVER_FILES.map((name) => path.join(place, name))].every((file) => {
    const stat = fs.lstatSync(file, { throwIfNoEntry: false });
    if (stat === undefined || stat.size === 0 || !isOwn(stat)) return false;
    return file === place ? stat.isDirectory() : stat.isFile();
  });
}

/** Removes a copy with missing, empty or open files, left by a cleaner, a power cut or an old umask. */
function discardDamaged(place: string): void {
  const stat = fs.lstatSync(place, { throwIfNoEntry: false });
  if (stat === undefined || isOwnDriver(place)) return;
  fs.rmSync(place, { recursive: true, force: true });
}

/** Unpacks the driver's files from a ustar archive: blocks of 512 bytes, a header before each file. */
function unpack(tar: Buffer, into: string): void {
  const found = new Set<string>();
  for (let at = 0; at + 512 <= tar.length && tar[at] !== 0; ) {
    const field = (from: number, length: number): string =>
      tar.toString('latin1', at + from, at + from + length).split('\0')[0];
    const size = Number.parseInt(field(124, 12), 8);
    if (!(size >= 0)) throw new Error('the archive is damaged');
    const name = path.basename(field(0, 100));
    if (DRIVER_FILES.includes(name)) {
      const bytes = tar.subarray(at + 512, at + 512 + size);
      fs.writeFileSync(path.join(into, name), bytes, { mode: 0o600, flag: 'wx' });
      found.add(name);
    }
    at += 512 * (1 + Math.ceil(size / 512));
  }
  const missing = DRIVER_FILES.filter((name) => !found.has(name));
  if (missing.length > 0) throw new Error(`the archive lacks ${missing.join(', ')}`);
}

function softwareError(problem: string, remedy = 'Set VK_ICD_FILENAMES to a Vulkan driver.'): TierKVError {
  return new TierKVError('TKV_DEVICE', `No software device: ${problem}. ${remedy}`, {
    field: 'TIERKV_ADAPTER',
  });
}

// ---- the places where Vulkan drivers register themselves

/** Whether the loader would find a driver. Without one, asking Dawn would only print warnings. */
export function anyManifest(): boolean {
  const { env } = process;
  const home = env.HOME ?? '';
  const roots = [
    env.XDG_CONFIG_HOME || path.join(home, '.config'),
    ...(env.XDG_CONFIG_DIRS || '/etc/xdg').split(':'),
    '/etc',
    '/usr/local/etc',
    env.XDG_DATA_HOME || path.join(home, '.local/share'),
    ...(env.XDG_DATA_DIRS || '/usr/local/share:/usr/share').split(':'),
    '/usr/local/share',
    '/usr/share',
  ];
  const added = (env.VK_ADD_DRIVER_FILES ?? '') !== '';
  return added || roots.some((root) => holdsManifest(path.join(root, 'vulkan/icd.d')));
}

function holdsManifest(folder: string): boolean {
  try {
    return fs.readdirSync(folder).some((name) => name.endsWith('.json'));
  } catch {
    return false;
  }
}
