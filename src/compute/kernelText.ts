/**
 * WGSL of the kernels over paged blocks. A head's vectors are named variables, one each, since arrays that
 * an index goes through are slow on software devices; and a kernel names each slab that it reads. So lines of
 * a shader are repeated:
 *
 *     var outDIM = vec4<f32>(); // each dim          once for each vector of a head, its number for DIM
 *     ... // each slab                               once for each slab, its number for SLAB; likewise HEAD
 *     // each slab {   to   // each slab }           the lines between, once for each slab
 *     ... // scaled                                  only where the format has a scale in each row; likewise
 *     // scaled {   to   // scaled }                 the lines between
 */

import { shaderSource } from '../backends/webgpu/index.ts';
import type { KVFormat } from './format.ts';

export interface TextShape {
  readonly format: KVFormat;
  readonly slabs: number;
  /** Query heads of a workgroup, for a kernel whose workgroup has several. Default 1. */
  readonly heads?: number;
  /** How the kernel uses the slabs; `none` for a kernel that has no business with them. */
  readonly access: 'read' | 'read_write' | 'none';
}

/** The code of `shaders/NAME.wgsl` behind what it shares with others. */
export function kernelText(name: string, shape: TextShape): string {
  const own = shaderSource('pagedRows');
  if (shape.access === 'none') return expandText(`${own}\n${shaderSource(name)}`, shape);
  const { enable, files } = shape.format;
  const shared = `${own}\n${shaderSource(...files, 'pagedSlabs')}`.replaceAll('ACCESS', shape.access);
  return `${enable}${expandText(`${shared}\n${shaderSource(name)}`, shape)}`;
}

/** Repeats the marked lines of `text`. */
export function expandText(text: string, { format, slabs, heads = 1 }: TextShape): string {
  const kept = format.scaled
    ? text
    : text.replaceAll(/^ *\/\/ scaled \{\n[\s\S]*?^ *\/\/ scaled \}$\n?|^.*\/\/ scaled$\n?/gm, '');
  const dims = repeatMarked(kept, 'dim', format.headDim4);
  return repeatMarked(repeatMarked(dims, 'head', heads), 'slab', slabs);
}

function repeatMarked(text: string, what: string, times: number): string {
  const name = what.toUpperCase();
  const region = new RegExp(`^ *// each ${what} \\{\\n([\\s\\S]*?)^ *// each ${what} \\}$`, 'gm');
  const line = new RegExp(`^(.*) // each ${what}$`, 'gm');
  const repeated = (_: string, part: string): string =>
    Array.from({ length: times }, (_, i) => part.replaceAll(name, String(i))).join('\n');
  return text.replaceAll(region, repeated).replaceAll(line, repeated);
}
