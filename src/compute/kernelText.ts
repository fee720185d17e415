/**
 * WGSL of the kernels over paged blocks. A head's vectors are named variables, one each, since arrays that
 * an index goes through are slow on software devices; and a kernel names each slab that it reads. So lines of
 * a shader are repeated:
 *
 *     var outDIM = vec4<f32>(); // each dim          once for each vector of a head, its number for DIM
 *     ... // each slab                               once for each slab, its number for SLAB
 *     // each slab {   to   // each slab }           the lines between, once for each slab
 *     ... // scaled                                  only where the format has a scale in each row
 */

import { shaderSource } from '../backends/webgpu/index.ts';
import type { KVFormat } from './format.ts';

export interface TextShape {
  readonly format: KVFormat;
  readonly slabs: number;
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
export function expandText(text: string, { format, slabs }: TextShape): string {
  const kept = format.scaled ? text : text.replaceAll(/^.*\/\/ scaled$\n?/gm, '');
  const dims = kept.replaceAll(/^.*\/\/ each dim$/gm, (line) =>
    repeated(line, 'DIM', format.headDim4, ' // each dim'),
  );
  const regions = dims.replaceAll(
    /^ *\/\/ each slab \{\n([\s\S]*?)^ *\/\/ each slab \}$/gm,
    (_, lines: string) => repeated(lines, 'SLAB', slabs),
  );
  return regions.replaceAll(/^.*\/\/ each slab$/gm, (line) => repeated(line, 'SLAB', slabs, ' // each slab'));
}

function repeated(text: string, name: string, times: number, mark = ''): string {
  const plain = mark === '' ? text : text.replace(mark, '');
  return Array.from({ length: times }, (_, i) => plain.replaceAll(name, String(i))).join('\n');
}
