/**
 * The WGSL of the package's `shaders/` folder. Its text is part of the program (shaderTexts.ts), so that a
 * bundled program needs no file beside it.
 */

import { TierKVError } from '../../../runtime/errors.ts';
import { shaderTexts } from './shaderTexts.ts';

/** The text of the files named, one behind the other: what several kernels share, then the kernel. */
export function shaderSource(...names: readonly string[]): string {
  return names.map(textOf).join('\n');
}

/** @throws TKV_INPUT naming the shader that is not there */
function textOf(name: string): string {
  if (Object.hasOwn(shaderTexts, name)) return shaderTexts[name];
  const known = Object.keys(shaderTexts).join(', ');
  throw new TierKVError('TKV_INPUT', `There is no shader ${String(name)}. There are ${known}.`, {
    field: 'names',
  });
}
