/**
 * The WGSL in the package's `shaders/` folder, which lies at the same distance from `src` and from `dist`.
 */

import { readFileSync } from 'node:fs';

/** The text of the files named, one behind the other: what several kernels share, then the kernel. */
export function shaderSource(...names: readonly string[]): string {
  return names.map(read).join('\n');
}

function read(name: string): string {
  return readFileSync(new URL(`../../../../shaders/${name}.wgsl`, import.meta.url), 'utf8');
}
