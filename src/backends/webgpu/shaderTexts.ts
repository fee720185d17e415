/**
 * The WGSL of `shaders/*.wgsl` by name. From the sources the files are read; a build has their texts in the place of this
 * module (tools/shaderModule.ts), so that a bundle needs no other file.
 */

import { readdirSync, readFileSync } from 'node:fs';

const folder = new URL('../../../shaders/', import.meta.url);

/** Kernels of the stores. All others belong to `tierkv/compute`, which a page may leave out. */
const ofStores: readonly string[] = ['slots', 'boxes', 'check', 'digest', 'fill', 'gather', 'scatter'];

const texts: readonly (readonly [string, string])[] = readdirSync(folder)
  .filter((file) => file.endsWith('.wgsl'))
  .sort()
  .map((file) => [file.slice(0, -'.wgsl'.length), readFileSync(new URL(file, folder), 'utf8')]);

export const storeShaders: Readonly<Record<string, string>> = Object.fromEntries(
  texts.filter(([name]) => ofStores.includes(name)),
);

export const computeShaders: Readonly<Record<string, string>> = Object.fromEntries(
  texts.filter(([name]) => !ofStores.includes(name)),
);
