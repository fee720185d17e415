/** The WGSL in the package's `shaders/` folder, which lies at the same distance from `src` and from `dist`. */

import { readFileSync } from 'node:fs';

/** One kernel's source, with the declarations that all kernels over places, or over boxes, share before it. */
export function shaderSource(kernel: string, shared: 'places' | 'boxes' = 'places'): string {
  return `${read(shared)}\n${read(kernel)}`;
}

function read(name: string): string {
  return readFileSync(new URL(`../../../shaders/${name}.wgsl`, import.meta.url), 'utf8');
}
