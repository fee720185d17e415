/**
 * WGSL of the kernels over paged blocks. A head's vectors are named variables, one each, since arrays that
 * an index goes through are slow on software devices; and a kernel names each slab that it reads. So lines of
 * a shader are repeated:
 *
 *     var outDIM = vec4<f32>(); // each dim          once for each vector of a head, its number for DIM
 *     ... // each slab                               once for each slab, its number for SLAB; likewise HEAD,
 *                                                    and TARGET for each slab of a second pool
 *     ... // each head // each dim                   once for each vector of each head
 *     // each slab {   to   // each slab }           the lines between, once for each slab
 *     ... // scaled                                  only where the format has a scale in each row; likewise
 *     // scaled {   to   // scaled }                 the lines between
 */

import { shaderSource } from '../backends/webgpu/index.ts';
import type { KVFormat } from './format.ts';

export interface TextShape {
  readonly format: KVFormat;
  readonly slabs: number;
  /** Query heads of an invocation or workgroup that has several. Default 1. */
  readonly heads?: number;
  /** How the kernel uses the slabs; `none` for a kernel that has no business with them. */
  readonly access: 'read' | 'read_write' | 'none';
}

/** The code of `shaders/NAME.wgsl`, which reads or writes tokens, behind what it shares with others. */
export function kernelText(name: string, { format, slabs, heads = 1, access }: TextShape): string {
  const { enable, files, scaled, headDim4 } = format;
  const repeats = { dim: headDim4, head: heads, slab: slabs };
  const own = shaderSource('pagedRows');
  if (access === 'none') return expandText(`${own}\n${shaderSource(name)}`, scaled, repeats);
  const shared = `${own}\n${shaderSource(...files, 'pagedSlabs')}`.replaceAll('ACCESS', access);
  return `${enable}${expandText(`${shared}\n${shaderSource(name)}`, scaled, repeats)}`;
}

/** The code that copies blocks within one pool, in units of so many bytes. */
export function copyText(unitBytes: 4 | 8 | 16, slabs: number): string {
  const stored = { 4: 'u32', 8: 'vec2<u32>', 16: 'vec4<u32>' }[unitBytes];
  const text = `alias Stored = ${stored};\n${shaderSource('blockPairs', 'copyBlocks')}`;
  return expandText(text, false, { slab: slabs });
}

/** The code that converts blocks of one pool into blocks of another. */
export function conversionText(from: KVFormat, slabs: number, to: KVFormat, targets: number): string {
  const renamed = ({ files }: KVFormat, side: string): string =>
    shaderSource(...files.filter((file) => file !== 'halfBits')).replaceAll(
      /\b(Stored|valueOf|storedOf|scaleOf|inverseOf|scaledOf|storedScale)\b/g,
      (word) => (word === 'Stored' ? `${side}Stored` : `${side.toLowerCase()}${capitalised(word)}`),
    );
  const bits = [from, to].some(({ files }) => files.includes('halfBits')) ? shaderSource('halfBits') : '';
  const kernel = to.scaled ? 'convertBlocksScaled' : 'convertBlocks';
  const own = shaderSource('blockPairs', 'convertSlabs', kernel);
  const text = [bits, renamed(from, 'From'), renamed(to, 'To'), own].join('\n');
  const enable = from.enable || to.enable;
  return `${enable}${expandText(text, from.scaled, { slab: slabs, target: targets })}`;
}

function capitalised(word: string): string {
  return `${word[0].toUpperCase()}${word.slice(1)}`;
}

/** Keeps or drops what is marked as scaled, and repeats the marked lines. */
function expandText(text: string, scaled: boolean, repeats: Readonly<Record<string, number>>): string {
  const kept = scaled
    ? text.replaceAll(/ *\/\/ scaled( [{}])?$/gm, '')
    : text.replaceAll(/^ *\/\/ scaled \{\n[\s\S]*?^ *\/\/ scaled \}$\n?|^.*\/\/ scaled$\n?/gm, '');
  return Object.entries(repeats).reduce(
    (expanded, [what, times]) => repeatMarked(expanded, what, times),
    kept,
  );
}

function repeatMarked(text: string, what: string, times: number): string {
  const name = what.toUpperCase();
  const region = new RegExp(`^ *// each ${what} \\{\\n([\\s\\S]*?)^ *// each ${what} \\}$`, 'gm');
  const line = new RegExp(`^(.*) // each ${what}$`, 'gm');
  const repeated = (_: string, part: string): string =>
    Array.from({ length: times }, (_, i) => part.replaceAll(name, String(i))).join('\n');
  return text.replaceAll(region, repeated).replaceAll(line, repeated);
}
