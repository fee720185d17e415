/**
 * The shader texts in the program equal the files `shaders/*.wgsl`. After a change of a file:
 *
 *     npx vitest run -u test/backends/webgpu/kernels/shader-texts-are-those-of-the-files.test.ts
 */

import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { shaderSource } from '../../../../src/backends/webgpu/kernels.ts';

const root = fileURLToPath(new URL('../../../..', import.meta.url));
const files = readdirSync(`${root}/shaders`).filter((file) => file.endsWith('.wgsl'));

const escaped = (text: string): string => text.replaceAll(/[\\`]|\$\{/g, (found) => `\\${found}`);
const module = `/**
 * The WGSL of \`shaders/*.wgsl\` by name. Made from those files, and held to them, by
 * test/backends/webgpu/kernels/shader-texts-are-those-of-the-files.test.ts.
 */

export const shaderTexts: Readonly<Record<string, string>> = {
${files
  .sort()
  .map((file) => `  ${file.slice(0, -5)}: \`${escaped(readFileSync(`${root}/shaders/${file}`, 'utf8'))}\`,\n`)
  .join('')}};
`;

it('the generated module of shader texts is up to date', async () => {
  await expect(module).toMatchFileSnapshot(`${root}/src/backends/webgpu/shaderTexts.ts`);
});

it('each shader text equals its file, byte for byte, and an unknown name is an error', () => {
  expect(files.length).toBeGreaterThan(20);
  for (const file of files) {
    const name = file.slice(0, -5);
    expect(shaderSource(name)).toBe(readFileSync(`${root}/shaders/${file}`, 'utf8'));
  }
  expect(() => shaderSource('atend')).toThrow(expect.objectContaining({ code: 'TKV_INPUT' }));
});
