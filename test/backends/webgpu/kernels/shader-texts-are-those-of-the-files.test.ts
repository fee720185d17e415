/**
 * The shader texts in the program equal the files `shaders/*.wgsl`. After a change of a file:
 *
 *     npx vitest run -u test/backends/webgpu/kernels/shader-texts-are-those-of-the-files.test.ts
 */

import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { shaderSource } from '../../../../src/backends/webgpu/kernels.ts';
import { computeShaders, storeShaders } from '../../../../src/backends/webgpu/shaderTexts.ts';

const root = fileURLToPath(new URL('../../../..', import.meta.url));
const files = readdirSync(`${root}/shaders`).filter((file) => file.endsWith('.wgsl'));

const escaped = (text: string): string => text.replaceAll(/[\\`]|\$\{/g, (found) => `\\${found}`);
/** What the stores run; all others are of `tierkv/compute`, which a page may leave out. */
const ofStores = ['slots', 'boxes', 'check', 'digest', 'fill', 'gather', 'scatter'];
const names = files.map((file) => file.slice(0, -5)).sort();
const texts = (own: readonly string[]): string =>
  own
    .map((name) => `  ${name}: \`${escaped(readFileSync(`${root}/shaders/${name}.wgsl`, 'utf8'))}\`,\n`)
    .join('');
const module = `/**
 * The WGSL of \`shaders/*.wgsl\` by name: of the stores, and of \`tierkv/compute\`. Made from those files, and held to them, by
 * test/backends/webgpu/kernels/shader-texts-are-those-of-the-files.test.ts.
 */

export const storeShaders: Readonly<Record<string, string>> = {
${texts(names.filter((name) => ofStores.includes(name)))}};

export const computeShaders: Readonly<Record<string, string>> = {
${texts(names.filter((name) => !ofStores.includes(name)))}};
`;

it('the generated module of shader texts is up to date', async () => {
  await expect(module).toMatchFileSnapshot(`${root}/src/backends/webgpu/shaderTexts.ts`);
});

it('each shader text equals its file, byte for byte, and an unknown name is an error', () => {
  expect(files.length).toBeGreaterThan(20);
  for (const file of files) {
    const name = file.slice(0, -5);
    const own = ofStores.includes(name) ? storeShaders : computeShaders;
    expect(shaderSource(own, name)).toBe(readFileSync(`${root}/shaders/${file}`, 'utf8'));
  }
  expect(() => shaderSource(computeShaders, 'atend')).toThrow(expect.objectContaining({ code: 'TKV_INPUT' }));
});
