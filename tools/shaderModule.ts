/** The texts of the shaders as a part of what a build writes: a bundle reads no file of the package for them. */

import { join, resolve } from 'node:path';
import type { Plugin } from 'rolldown';
import { computeShaders, storeShaders } from '../src/backends/webgpu/shaderTexts.ts';

const module = join(resolve(import.meta.dirname, '..'), 'src', 'backends', 'webgpu', 'shaderTexts.ts');

/** Without the remarks, which are half of a kernel; a line that repeats says so in a remark, and keeps it. */
const bare = (text: string): string =>
  text
    .split('\n')
    .filter((line) => !/^\s*\/\/(?! each )/.test(line))
    .join('\n');

/** In the place of `shaderTexts.ts`. @param remarks false leaves out the remarks of the kernels */
export function shaderModule(remarks: boolean): string {
  return Object.entries({ storeShaders, computeShaders })
    .map(([name, shaders]) => {
      const texts = Object.entries(shaders).map(([key, text]) => [key, remarks ? text : bare(text)]);
      return `export const ${name} = ${JSON.stringify(Object.fromEntries(texts), null, 2)};\n`;
    })
    .join('\n');
}

export const shadersInside = (remarks: boolean): Plugin => ({
  name: 'tierkv-shaders',
  load: (id) => (id === module ? shaderModule(remarks) : null),
});
